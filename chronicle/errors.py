"""What can go wrong, grouped by what the handler does about it (design 9).

    ChronicleError                     .kind  .context  -> exit code
      InputError(ValueError)           the input is wrong: quarantine it, do not retry            65
      UsageError(ValueError)           the call is wrong: a name, an option, a query               2
      ConflictError                    somebody else won, after all retries                       73
        StaleFence  EpochAlreadyOwned  PublicationChanged  CurrentConflict
      CommitStateUnknown               may have landed: run again, it reads back                  75
      NotFoundError(LookupError)       a source, dataset, story or segment is not there           66
      IntegrityError                   bytes disagree: stop, the operator looks                   78
      StorageError(OSError)            .transient says whether a retry helps                      69
      ProjectionError                  a derived layer failed, the facts are good                 70
      ConfigError(ValueError)          settings or the store need the operator                    78
"""

from __future__ import annotations

from typing import Any


class ChronicleError(Exception):
    """Root of every error raised on purpose.

    `message` says what happened and where, `hint` what to do next; `kind` is a stable string
    for handlers, `context` holds the values a handler needs. Instances survive pickling.
    """

    kind = "error"
    exit_code = 70

    def __init__(self, message: str, *, hint: str = "", kind: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context
        if kind is not None:
            self.kind = kind

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.message, self.hint, self.kind, self.context)


def _revive(cls: type[ChronicleError], message: str, hint: str, kind: str, context: dict[str, Any]) -> ChronicleError:
    return cls(message, hint=hint, kind=kind, **context)


class InputError(ChronicleError, ValueError):
    """The input is wrong. `kind` is the quarantine kind of design 4.2 (`truncated`, `unsupported:<what>`, ...)."""

    kind = "unreadable"
    exit_code = 65


class UsageError(ChronicleError, ValueError):
    """The call is wrong: a name that is not allowed, an unknown format, refused SQL, a target that may not be written."""

    kind = "usage"
    exit_code = 2


class ConflictError(ChronicleError):
    """Somebody else won and the retries are used up."""

    kind = "conflict"
    exit_code = 73


class StaleFence(ConflictError):
    """The writer's fence is not the active one any more."""

    kind = "stale-fence"


class EpochAlreadyOwned(ConflictError):
    """The requested epoch is active under another writer id."""

    kind = "epoch-already-owned"


class PublicationChanged(ConflictError):
    """The descriptors that were to be replaced are not there as expected, or the swap was lost too often."""

    kind = "publication-changed"


class CurrentConflict(ConflictError):
    """Another table writer holds the lease or has moved CURRENT."""

    kind = "current-conflict"


class CommitStateUnknown(ChronicleError):
    """The swap was sent and its answer lost; nobody knows yet whether it landed."""

    kind = "commit-state-unknown"
    exit_code = 75


class NotFoundError(ChronicleError, LookupError):
    """A source, dataset, story or segment does not exist."""

    kind = "not-found"
    exit_code = 66


class IntegrityError(ChronicleError):
    """Stored bytes disagree with what was promised about them."""

    kind = "integrity"
    exit_code = 78


class StorageError(ChronicleError, OSError):
    """The store failed; `transient` says whether trying again helps."""

    kind = "storage"
    exit_code = 69

    @property
    def transient(self) -> bool:
        """Whether a retry may succeed without anybody changing anything."""
        return bool(self.context.get("transient", False))


class ProjectionError(ChronicleError):
    """A derived layer failed; the facts are good."""

    kind = "projection"
    exit_code = 70


class ConfigError(ChronicleError, ValueError):
    """Settings, permissions or the store itself need the operator."""

    kind = "config"
    exit_code = 78
