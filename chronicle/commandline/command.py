"""How a function becomes a verb of the command line, and how its end becomes an exit code.

A verb is a function of a `Call` and its own flags. `verb` gives it the flags that every verb has and hands the call
what these said; `main` runs an application and translates whatever was raised. Nothing heavy is imported here:
`chronicle --help` pays for all of it.
"""

from __future__ import annotations

import errno
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from chronicle.commandline.console import Console, abandon_stdout, say, write
from chronicle.errors import ChronicleError, ConfigError, StorageError, UsageError

if TYPE_CHECKING:
    from chronicle.layout import DatasetPaths
    from chronicle.reports import Report
    from chronicle.settings import Settings

EXIT_INTERRUPTED = 130
EXIT_BUG = 70
YEAR = 366 * 86400.0
"""Seconds. Nobody waits for longer, and clocks of the system take no more than some years."""
_LARGEST = 2**63 - 1

Subject = Literal["dataset", "lake", "whole lake", "lake or files"] | None
_LAKE = click.Option(["--lake"], metavar="URI", help="Where the lake is: a directory, or s3://bucket/prefix.")
_DATASET = click.Option(["--dataset"], metavar="NAME", help="Name of the dataset in the lake.")
_JSON = click.Option(["--json"], is_flag=True, help="Print one JSON document, on a terminal too.")
_CONFIG = click.Option(["--config"], metavar="FILE.toml", help="Settings; flags and CHRONICLE_* win.")
_QUIET = click.Option(["--quiet"], is_flag=True, help="Say nothing but results and errors.")
_DRY_RUN = click.Option(["--dry-run"], is_flag=True, help="Say what would be done, change nothing.")


class Count(click.IntRange):
    """A whole number within bounds, by default those of 64 bits; says so where it is none."""

    def __init__(self, min: int) -> None:
        super().__init__(min, _LARGEST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of a text. Fails as click does."""
        try:
            int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.FloatRange):
    """A number of seconds, at most a year; says so where it is none."""

    def __init__(self) -> None:
        super().__init__(0, YEAR)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of a text. Fails as click does."""
        try:
            is_number = not math.isnan(float(value))
        except ValueError:
            is_number = False
        if not is_number:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return super().convert(value, param, ctx)


class Verbs(click.Group):
    """A group of verbs, in the order in which they were added. The flags of all verbs may stand before the verb too."""

    def __init__(self, name: str, help: str, epilog: str | None = None) -> None:
        context = {"help_option_names": ["-h", "--help"]}
        super().__init__(name, help=help, epilog=epilog, params=[_JSON, _CONFIG, _QUIET], context_settings=context)

    def list_commands(self, context: click.Context) -> list[str]:
        """Names of the verbs, first things first."""
        return list(self.commands)


class Call(NamedTuple):
    """One call of a verb: what the flags of all verbs said."""

    console: Console
    settings: Settings
    dry_run: bool
    flags: Mapping[str, Any]
    """The flags of all verbs as they stood on the command line; None for those that did not."""

    @property
    def paths(self) -> DatasetPaths:
        """Places of the dataset. Raises UsageError when lake or dataset is not given."""
        return self.settings.paths()

    @property
    def lake(self) -> str:
        """The lake as an absolute path. Raises UsageError when none is given."""
        return self.settings.lake_path()

    def check_place(self, on: Subject) -> None:
        """Raise UsageError or ConfigError where the place that a verb works on cannot be one."""
        if on == "dataset" or (on == "lake" and self.settings.dataset):
            _ = self.paths
        if Path(self.lake).is_file():  # no object store's path is one
            raise ConfigError(f"the lake path {self.lake} is a file", hint="name a directory")


Verb = Callable[..., "Report | None"]


def verb(
    group: Verbs, name: str, *own: click.Parameter, on: Subject = "dataset", changes: bool = False, keeps: bool = True
) -> Callable[[Verb], Verb]:
    """Register a function of (call, own flags) as verb `name` of a group; its docstring is the help.

    `on`: whether the verb needs a dataset, a lake (then --dataset narrows it), the whole lake (whatever dataset the
    settings name), a lake unless it is given files (it checks that itself), or neither. `changes`: it changes
    something, so it takes --dry-run. A report that it returns is shown and decides the exit code; where the verb changes
    a dataset it is kept there too, unless `keeps` is false because the function does that itself.
    """
    place = {None: [], "whole lake": [_LAKE]}.get(on, [_LAKE, _DATASET])
    common = [*([_DRY_RUN] if changes else []), *place, _JSON, _CONFIG, _QUIET]

    def register(function: Verb) -> Verb:
        def command(**values: Any) -> None:
            said = {flag.name: values.pop(flag.name) for flag in common}
            context = click.get_current_context().parent
            while context is not None:
                said |= {key: value for key, value in context.params.items() if not said.get(key)}
                context = context.parent
            _carry_out(function, said, values, on, stored=changes and keeps and on == "dataset")

        group.add_command(click.Command(name, callback=command, params=[*own, *common], help=function.__doc__))
        return function

    return register


def _carry_out(function: Verb, said: dict[str, Any], own: dict[str, Any], on: Subject, *, stored: bool) -> None:
    from chronicle import reports, settings
    from chronicle.storage import s3config

    given = settings.load(said["config"], os.environ, lake=said.get("lake"), dataset=said.get("dataset"))
    s3config.configure(
        endpoint=given.s3.endpoint,
        region=given.s3.region,
        profile=given.s3.profile,
        anonymous=given.s3.anonymous,
        single_writer=given.single_writer,
    )
    call = Call(Console(json=bool(said["json"]), quiet=bool(said["quiet"])), given, bool(said.get("dry_run")), said)
    if on and on != "lake or files":  # before anything slow
        call.check_place(on)
    began = time.monotonic()
    report = function(call, **own)
    if report is None:
        return
    report.seconds = round(report.seconds or time.monotonic() - began, 3)
    if on == "dataset" and isinstance(report, reports.DatasetReport):
        from chronicle.freshness import freshness_of

        report.freshness = freshness_of(call.paths)
    if stored and not call.dry_run:
        reports.keep(report, call.paths)
    call.console.report(report)
    click.get_current_context().exit(report.exit_code())


def main(app: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code (design 8); never lets an exception through."""
    _open_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(json="--json" in given)
    try:
        with app.make_context("chronicle", given or ["--help"]) as context:
            app.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except ChronicleError as error:
        console.error(error)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # a group of verbs alone, like the command alone
        write(f"{error.format_message()}\n".encode())
        return 0
    except click.ClickException as error:
        console.error(UsageError(error.format_message().rstrip("."), hint=f"see `{_help_command(error)}`"))
        return UsageError.exit_code
    except KeyboardInterrupt:
        say("interrupted: what was published stays; run the same command again and it goes on from there")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except Exception as error:
        return _unexpected(error, console)


def _open_streams() -> None:
    """Give the null device to a standard stream that the caller has closed: the next file that is opened would take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _help_command(error: click.ClickException) -> str:
    """The help of the innermost command that exists."""
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'chronicle'} --help"


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
