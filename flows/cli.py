"""The `chronicle` command: the plain verbs, and those that need Prefect, which is imported only when they run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from chronicle.cli import ALLOW_QUARANTINE, FORMAT, WORKERS, app
from chronicle.commandline import command
from chronicle.commandline.command import Call, verb
from chronicle.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from chronicle.options import PipelineOptions
    from chronicle.reports import Report

SOURCES = click.Argument(["sources"], nargs=-1, metavar="[SOURCE]...")
SINCE = click.Option(["--since"], metavar="T", help="Only files modified at or after T: a date, a time, or 24h.")
UNTIL = click.Option(["--until"], metavar="T", help="Only files modified before T.")
_BY_REPORT = (0, 65, 70)
"""Exit codes of verbs that came to their end."""


@verb(app, "run", SOURCES, FORMAT, WORKERS, ALLOW_QUARANTINE, SINCE, UNTIL, changes=True, keeps=False)
def run(
    call: Call,
    sources: tuple[str, ...],
    format: str | None,
    workers: int | None,
    allow_quarantine: bool,
    since: str | None,
    until: str | None,
) -> Report:
    """Run the whole pipeline.

    Ingest, rebuild, materialize and verify, as a Prefect flow. SOURCE is as in `ingest`; without one the sources of the
    settings are taken.
    """
    import time

    from chronicle.settings import instant_ns

    now = time.time_ns()
    options = _options(
        call,
        sources=sources or call.settings.sources,
        format=format or call.settings.format,
        workers=workers or call.settings.workers,
        allow_quarantine=allow_quarantine or call.settings.allow_quarantine,
        since_ns=instant_ns(since, now) if since else None,
        until_ns=instant_ns(until, now) if until else None,
    )
    with call.console.progress("run"), _prefect():
        from flows.pipeline import pipeline

        report = pipeline(options)
    if report.ingest is not None and not report.ingest.sources and not call.console.for_people:
        for warning in report.ingest.warnings:
            call.console.note(f"warning: {warning}")
    return report


@verb(app, "serve", keeps=False)
def serve(call: Call) -> None:
    """Run the pipeline on a schedule.

    Cron or interval, as the --config file says, until it is stopped: with Ctrl-C (exit 130) or SIGTERM (exit 0). One line
    on standard error for each run that has ended.
    """
    from chronicle.storage import s3config

    settings = call.settings
    schedule, seconds = settings.schedule, settings.schedule.interval_seconds
    if (schedule.cron is None) == (seconds is None):
        raise ConfigError("the schedule needs exactly one of cron and interval", hint="see configs/local.toml for an example")
    if schedule.cron is not None:
        from flows.cadence import check_cron

        config = call.flags["config"] or os.environ.get("CHRONICLE_CONFIG") or "CHRONICLE_* variables"
        check_cron(schedule.cron, schedule.timezone, config)
    options = _options(
        call,
        sources=settings.sources,
        format=settings.format,
        workers=settings.workers,
        allow_quarantine=settings.allow_quarantine,
    )
    os.environ.update(s3config.exported())  # runs are processes of their own
    with _prefect(services=True) as url:
        from flows.serve import deployment_name, serve_pipeline

        where = f"deployment pipeline/{deployment_name(schedule, options)} at {url}"
        call.console.note(f"serving {schedule.name!r} for {options.lake}, dataset {options.dataset}; {where}")
        interrupted = serve_pipeline(schedule, options)
    if interrupted:
        raise click.exceptions.Exit(command.EXIT_INTERRUPTED)


def _options(call: Call, **values: object) -> PipelineOptions:
    """Options of the pipeline from settings and what a verb was told. Raises UsageError when there is no source."""
    from chronicle.options import PipelineOptions

    settings, limits = call.settings, call.settings.limits
    if not values["sources"]:
        raise UsageError("no source is given", hint="name a file, directory or glob, or set `sources` in the --config file")
    shared = {
        "lake": call.paths.lake,
        "dataset": call.paths.dataset,
        "reasoning": settings.reasoning,
        "max_source_bytes": limits.max_source_bytes,
        "max_ratio": limits.max_ratio,
        "batch_bytes": limits.batch_bytes,
        "lease_seconds": settings.lease_seconds,
        "retention_seconds": settings.retention_seconds(),
        "dry_run": call.dry_run,
    }
    return PipelineOptions(**shared, **values)  # type: ignore[arg-type]


@contextlib.contextmanager
def _prefect(*, services: bool = False) -> Iterator[str]:
    """Make Prefect ready to use and give its API URL: the user's server (PREFECT_API_URL), else a temporary one."""
    from infra.prefect_server import TemporaryServer, environment

    os.environ.update(environment(os.environ))
    url = os.environ.get("PREFECT_API_URL")
    if url:
        from flows.reach import reached

        with reached(url):
            yield url
        return
    with TemporaryServer(os.environ, services=services) as server:
        os.environ["PREFECT_API_URL"] = server.url
        os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "true" if services else "false"  # nobody could read them
        import flows.pipeline  # noqa: F401  beside the start of the server: both take seconds

        server.wait_until_healthy()
        yield server.url


def main() -> None:
    """Run the command line and end the process with its exit code."""
    code = command.main(app)
    if "prefect" in sys.modules and code in _BY_REPORT:
        sys.exit(code)  # it hands over the rest of its log at the interpreter's end
    # Taking the interpreter down takes a tenth of a second, and threads of Lance that a broken-off verb left would abort it.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
