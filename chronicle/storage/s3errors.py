"""What an object store or the way to it can say, in one kind of error, and that error in our words (design 9)."""

from __future__ import annotations

from typing import Any, Literal

from chronicle.errors import ChronicleError, ConfigError, NotFoundError, StorageError
from chronicle.storage.uri import S3

Kind = Literal["missing", "lost", "denied", "busy", "cut", "unreached", "full", "refused"]
"""missing: no such key. lost: a condition did not hold. busy: the server failed or asks for patience. cut: no answer
came. unreached: nothing was sent. full: no space. denied, refused: asking again does not help."""

_MISSING = {"NoSuchKey", "404", "NotFound", "NoSuchVersion"}
_LOST = {"PreconditionFailed", "ConditionalRequestConflict", "OperationAborted", "412", "409"}
_DENIED = {"AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed"}
_BUSY = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "TooManyRequests"}
_FULL = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"}


class S3Error(Exception):
    """One failed request. `code` is the store's own word, `status` of HTTP (0: there was no answer)."""

    def __init__(self, kind: Kind, code: str, status: int, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code
        self.status = status

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in {"busy", "cut", "unreached"}


def translated(error: S3Error, bucket: str, key: str) -> ChronicleError:
    """Say a failed request in our words (design 9)."""
    path = f"{S3}{bucket}/{key}".rstrip("/")
    where = f"{path}: {error}"
    if error.code == "NoSuchBucket":
        return NotFoundError(f"bucket {bucket!r} does not exist", hint="create it, or correct the URI", path=path)
    if error.kind == "missing":
        return NotFoundError(where, hint="check that it exists", path=path)
    if error.kind == "full":
        return StorageError(where, hint="free some space and run again", kind="storage-full", path=path, transient=False)
    if error.code == "RequestTimeTooSkewed":
        return ConfigError(where, hint="set the clock of this machine", path=path)
    if error.kind == "denied" or error.status in {301, 307, 400, 401, 403, 405, 501}:
        return ConfigError(where, hint="check keys, region and permissions with `chronicle doctor`", path=path)
    hint = "run again when the store answers" if error.transient else "check the store, then run again"
    return StorageError(where, hint=hint, path=path, transient=error.transient)


def failure_of(error: Exception) -> S3Error | ChronicleError | None:
    """What a library raised, as ours; None where it is no failure of a request."""
    import botocore.exceptions as boto
    import urllib3.exceptions as http
    from botocore.parsers import ResponseParserError

    if isinstance(error, boto.ClientError):
        return _answered(error.response)
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError | boto.ProxyConnectionError):
        return S3Error("unreached", type(error).__name__, 0, f"no connection: {error}")
    if isinstance(error, boto.SSLError) and _is_of_settings(error):
        return ConfigError(f"object store: {error}", hint="check the endpoint and its certificate with `chronicle doctor`")
    broken = boto.HTTPClientError | boto.SSLError | boto.IncompleteReadError | ResponseParserError
    if isinstance(error, broken | http.HTTPError | TimeoutError | ConnectionError):
        return S3Error("cut", type(error).__name__, 0, f"the connection broke: {error}")
    if isinstance(error, boto.BotoCoreError) or (isinstance(error, ValueError) and "endpoint" in str(error)):
        return ConfigError(f"object store: {error}", hint="check keys, profile and endpoint with `chronicle doctor`")
    return None


def _is_of_settings(error: Any) -> bool:
    """Whether TLS will never work here: a certificate that is not trusted, or a server that does not speak it.

    Anything else may have come after a request was sent.
    """
    told = error.kwargs["error"]
    cause = told.args[0] if told.args else told
    return isinstance(cause, ValueError) or getattr(cause, "reason", "") == "WRONG_VERSION_NUMBER"  # certificates: ValueError


def _answered(answer: dict[str, Any]) -> S3Error:
    said = answer.get("Error", {})
    code = str(said.get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = f"{code}: {said.get('Message', '')}".strip(": ") or f"status {status}"
    if code == "NoSuchBucket":
        return S3Error("refused", code, status, text)
    if code in _MISSING:
        return S3Error("missing", code, status, text)
    if code in _LOST or status in {409, 412}:
        return S3Error("lost", code, status, text)
    if code in _FULL:
        return S3Error("full", code, status, text)
    if code in _DENIED or status in {401, 403}:
        return S3Error("denied", code, status, text)
    if code in _BUSY or status in {429, 500, 502, 503, 504}:
        return S3Error("busy", code, status, text)
    return S3Error("refused", code, status, text)
