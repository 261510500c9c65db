"""How a function becomes a verb of the command line, and how its end becomes an exit code.

A verb is a function of a `Call` and its own flags. `verb` gives it the flags that every verb has and hands the call
what these said; `main` runs an application and translates whatever was raised. Nothing heavy is imported here:
`chronicle --help` pays for all of it.
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chronicle.console import Console, abandon_stdout, say, write
from chronicle.errors import ChronicleError, StorageError, UsageError

if TYPE_CHECKING:
    from chronicle.layout import DatasetPaths
    from chronicle.reports import Report
    from chronicle.settings import Settings

EXIT_INTERRUPTED = 130
EXIT_BUG = 70

Lake = Annotated[str | None, typer.Option(help="Directory of the lake.", metavar="DIR", show_default=False)]
Dataset = Annotated[str | None, typer.Option(help="Name of the dataset in the lake.", metavar="NAME", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, on a terminal too.")]
Config = Annotated[str | None, typer.Option(help="Settings; flags and CHRONICLE_* win.", metavar="FILE.toml", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but results and errors.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, change nothing.")]
Subject = Literal["dataset", "lake"] | None


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        write(f"chronicle {version('chronicle')}\n".encode())
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb: what the flags of all verbs said."""

    console: Console
    settings: Settings
    dry_run: bool = False

    @property
    def paths(self) -> DatasetPaths:
        """Places of the dataset. Raises UsageError when lake or dataset is not given."""
        return self.settings.paths()

    @property
    def lake(self) -> str:
        """The lake as an absolute path. Raises UsageError when none is given."""
        return self.settings.lake_path()


Verb = Callable[..., "Report | None"]


def root_flags(
    context: typer.Context, json: Json = False, config: Config = None, quiet: Quiet = False, version: Version = False
) -> None:
    """Take the flags of all verbs before the verb too; they are read back from the root context."""


def verb(
    app: typer.Typer, name: str, *, on: Subject = "dataset", changes: bool = False, keeps: bool = True
) -> Callable[[Verb], Verb]:
    """Register a function of (call, own flags) as verb `name` of an application.

    `on`: whether the verb needs a dataset, a lake (then --dataset narrows it), or neither. `changes`: it changes
    something, so it takes --dry-run. A report that it returns is shown and decides the exit code; where the verb changes
    a dataset it is kept there too, unless `keeps` is false because the function does that itself.
    """
    flags: dict[str, tuple[Any, Any]] = {"json": (Json, False), "config": (Config, None), "quiet": (Quiet, False)}
    if on:
        flags = {"lake": (Lake, None), "dataset": (Dataset, None), **flags}
    if changes:
        flags = {"dry_run": (DryRun, False), **flags}
    common = [_keyword(key, kind, default) for key, (kind, default) in flags.items()]

    def register(function: Verb) -> Verb:
        def command(context: typer.Context, **values: Any) -> None:
            said = {key: values.pop(key, None) or context.find_root().params.get(key) for key in [*flags, "dry_run"]}
            _carry_out(function, said, values, on, stored=changes and keeps and on == "dataset")

        own = [flag.replace(kind=flag.KEYWORD_ONLY) for flag in list(inspect.signature(function).parameters.values())[1:]]
        parameters = [_keyword("context", typer.Context, inspect.Parameter.empty), *own, *common]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__doc__ = function.__doc__
        app.command(name)(command)
        return function

    return register


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _carry_out(function: Verb, said: dict[str, Any], own: dict[str, Any], on: Subject, *, stored: bool) -> None:
    from chronicle import reports, settings

    given = settings.load(said["config"], os.environ, lake=said.get("lake"), dataset=said.get("dataset"))
    call = Call(Console(json=bool(said["json"]), quiet=bool(said["quiet"])), given, bool(said["dry_run"]))
    if on:  # before anything slow
        _ = call.paths if on == "dataset" or given.dataset else call.lake
    began = time.monotonic()
    report = function(call, **own)
    if report is None:
        return
    report.seconds = report.seconds or round(time.monotonic() - began, 3)
    if stored and not call.dry_run:
        reports.keep(report, call.paths)
    call.console.report(report)
    raise typer.Exit(report.exit_code())


def main(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code (design 8); never lets an exception through."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(json="--json" in given)
    try:
        code = typer.main.get_command(app).main(given or ["--help"], prog_name="chronicle", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ChronicleError as error:
        console.error(error)
        return error.exit_code
    except typer.TyperException as error:
        console.error(UsageError(error.format_message().rstrip("."), hint=f"see `{_help_command(given)}`"))
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted: what was published stays; run the same command again and it goes on from there")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except Exception as error:
        return _unexpected(error, console)


def _help_command(given: Sequence[str]) -> str:
    verbs = [word for word in given[:1] if not word.startswith("-")]
    return " ".join(["chronicle", *verbs, "--help"])


def _unexpected(error: Exception, console: Console) -> int:
    if os.environ.get("CHRONICLE_DEBUG"):
        traceback.print_exc()
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        console.error(StorageError(f"the disk is full: {error}", hint="free some space and run the same command again"))
        return StorageError.exit_code
    words = str(error).splitlines() or [""]
    bug = ChronicleError(
        f"{type(error).__name__}: {words[0]}",
        hint="this is a bug in chronicle: please report it with the output of the same command under CHRONICLE_DEBUG=1",
        kind="bug",
    )
    console.error(bug)
    return EXIT_BUG
