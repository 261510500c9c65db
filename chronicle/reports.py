"""What each verb says when it is done: counts, and what an operator must look at. JSON by msgspec."""

from __future__ import annotations

import os
import time

import msgspec

from chronicle.errors import ChronicleError
from chronicle.layout import DatasetPaths
from chronicle.storage import files


class Report(msgspec.Struct, kw_only=True):
    """Common part. `warnings` are sentences for people."""

    verb: str
    dataset: str = ""
    seconds: float = 0.0
    dry_run: bool = False
    warnings: list[str] = []

    def exit_code(self) -> int:
        """Exit code of a verb that ended with this report (design 8)."""
        return 0


class DatasetReport(Report, kw_only=True):
    """Of a verb that changes a dataset."""

    freshness: str = ""
    """Of the tables when it ended: `fresh`, `stale by <n> facts` or `missing`. The command line fills it in (design 5.2)."""


class QuarantinedSource(msgspec.Struct, kw_only=True):
    """One entry of the quarantine as reports and `quarantine list` name it."""

    id: str
    source_key: str
    locator: int | None
    """Ordinal of the member; None: the whole source."""
    kind: str
    reason: str
    size: int
    new: bool = False


class IngestReport(DatasetReport, kw_only=True):
    """`sources` = `ingested` + `unchanged` + `bound` + sources that are wholly in quarantine + `empty`."""

    verb: str = "ingest"
    sources: int = 0
    ingested: int = 0
    unchanged: int = 0
    bound: int = 0
    continued: int = 0
    """Of `ingested`: grown JSONL of which only the tail was stored."""
    empty: int = 0
    ignored: dict[str, int] = {}
    """Files in walked directories that are not taken, by suffix."""
    changed_while_read: list[str] = []
    quarantined_new: int = 0
    quarantined_still: int = 0
    quarantine: list[QuarantinedSource] = []
    documents: int = 0
    events: int = 0
    source_bytes: int = 0
    files_opened: int = 0
    segments: int = 0
    fact_version: int = 0
    allow_quarantine: bool = False
    rows_before: int = 0
    """Rows of the log when the run began: what it touched are the sources that later facts speak of."""

    def exit_code(self) -> int:
        """65 when a source of this run is in quarantine for more than being empty."""
        bad = self.quarantined_new + self.quarantined_still
        return 65 if bad and not self.allow_quarantine else 0


class DrainReport(DatasetReport, kw_only=True):
    """What a drain brought from a spool into the log."""

    verb: str = "drain"
    spool: str = ""
    skipped: str = ""
    """Why the drain did nothing, if it did."""
    files: int = 0
    """Journal files that are in the log and were removed."""
    records: int = 0
    bytes: int = 0
    """Of the records."""
    segments: int = 0
    torn: int = 0
    """Records that a writer which died had not written whole; nobody was told that they are stored."""
    quarantined_new: int = 0
    quarantined_still: int = 0
    quarantine: list[QuarantinedSource] = []
    """What was handed to the spool and is no record, and torn ends."""
    fact_version: int = 0
    rows_before: int = 0

    def exit_code(self) -> int:
        """65 when something was handed in that is no record; a torn end is none."""
        return 65 if self.quarantined_new + self.quarantined_still else 0


class RebuildReport(DatasetReport, kw_only=True):
    """Counts of the three tables, and what this rebuild did to them."""

    verb: str = "rebuild"
    mode: str = ""
    """`incremental`, `full` or `fresh` (nothing to do)."""
    why: str = ""
    """Why it had to be full."""
    rows_before: int = 0
    """Fact rows that the tables held before; 0 where they were made anew."""
    facts_read: int = 0
    stories_replaced: int = 0
    stories_removed: int = 0
    runs: int = 0
    steps: int = 0
    tool_calls: int = 0
    events_ignored: dict[str, int] = {}
    incomplete: list[str] = []
    failed: list[str] = []
    """Documents that could not be projected, with the reason; the facts are good."""
    lints: dict[str, int] = {}
    fact_version: int = 0
    generation: str = ""

    def exit_code(self) -> int:
        """70 when a document could not be projected."""
        return 70 if self.failed else 0


class MaterializeReport(DatasetReport, kw_only=True):
    """Files of the AgenticMD view."""

    verb: str = "materialize"
    stories: int = 0
    written: int = 0
    unchanged: int = 0
    removed: int = 0
    edited: list[str] = []
    """Files that were changed by hand: left alone."""
    fact_version: int = 0


class ExportReport(Report, kw_only=True):
    """Files that an export wrote."""

    verb: str = "export"
    to: str = ""
    files: int = 0
    documents: int = 0
    stories: int = 0
    """Runs in those documents; of Parquet the rows of `runs`. 0 with `--exact`."""
    turns_left_out: int = 0
    """Copied turns, and turns of the agent that no model made."""
    bytes: int = 0
    skipped: list[str] = []
    """What was not written, and why."""
    fact_version: int = 0
    freshness: str = ""
    """Of the tables that were read: `fresh`, `stale by <n> facts`; empty with `--exact`."""


class PageReport(Report, kw_only=True):
    """A page that was written."""

    verb: str = "report"
    to: str = ""
    bytes: int = 0
    datasets: int = 0
    """Whose tables it is about."""
    runs: int = 0


class Difference(msgspec.Struct, kw_only=True):
    """One thing that is not as it should be."""

    layer: str
    """`facts`, `tables` or `markdown`."""
    what: str
    detail: str


class VerifyReport(Report, kw_only=True):
    """What was compared, and every difference."""

    verb: str = "verify"
    sources: int = 0
    sources_changed: int = 0
    sources_gone: int = 0
    stories: int = 0
    markdown_files: int = 0
    differences: list[Difference] = []
    freshness: str = ""
    fact_version: int = 0

    def exit_code(self) -> int:
        """65 when something differs."""
        return 65 if self.differences else 0


class Stock(msgspec.Struct, kw_only=True, frozen=True):
    """What lies in the store for a dataset, before or after maintenance."""

    segments: dict[str, int] = {}
    """Visible segments by level."""
    segment_directories: int = 0
    """Of segments, visible or not."""
    rows: int = 0
    """Facts."""
    fact_version: int = 0
    bytes: dict[str, int] = {}
    """By layer: events, storyline, receipts; all that lies there."""
    versions: dict[str, int] = {}
    """Versions of Lance datasets: of all segments together, of each table of the visible generation, of the receipts."""
    fragments: dict[str, int] = {}
    """Pieces of each table and of the receipts."""
    generations: int = 0
    """Directories of table generations."""


class Merged(msgspec.Struct, kw_only=True):
    """Neighbouring segments that became one, or would."""

    into: str
    """Id of the new segment; in a dry run a name for it."""
    level: int
    segments: list[str]
    rows: int
    bytes: int
    """Of the segments that were merged, as they lie; of one that a dry run only thinks of, the sum of its parts."""
    bytes_after: int | None = None
    """None in a dry run: nobody knows yet."""


class Removed(msgspec.Struct, kw_only=True):
    """Something that nobody could reach for the retention, and its bytes."""

    kind: str
    """`segment`, `generation`, `versions`, or `file`: what a killed process left."""
    name: str
    versions: list[int] = []
    bytes: int = 0


class MaintainReport(DatasetReport, kw_only=True):
    """What a maintenance did; with `dry_run` what it would do."""

    verb: str = "maintain"
    before: Stock = Stock()
    after: Stock = Stock()
    merged: list[Merged] = []
    indexed: list[str] = []
    """`segment <id>`, or `<table>.<index>`."""
    rewritten: list[str] = []
    """Tables and receipts that were written anew, in fewer pieces."""
    retired: list[str] = []
    """Things that nobody can reach since now: they stay for the retention."""
    removed: list[Removed] = []
    removed_bytes: int = 0
    waiting: int = 0
    """Things that nobody can reach, for less than the retention."""
    skipped: list[str] = []
    """What was left as it was, and why."""


class QuarantineReport(Report, kw_only=True):
    """Entries of the quarantine: all of them, the one that was shown, or the one that was dropped."""

    verb: str = "quarantine list"
    entries: list[QuarantinedSource] = []
    preview: str = ""
    """Beginning of the bytes of the entry that is shown, as text."""


class ReceiptsReport(Report, kw_only=True):
    """What the lake knows of each source key."""

    verb: str = "receipts list"
    receipts: list[dict[str, object]] = []


class ConvertReport(Report, kw_only=True):
    """One converted file."""

    verb: str = "convert"
    source: str = ""
    to: str = ""
    stories: int = 0
    bytes: int = 0
    strict: bool = False
    """Nothing was to be lost: where something would be, nothing was written."""
    lost: list[str] = []
    """Places of the source that the target does not give back."""

    def exit_code(self) -> int:
        """65 when something would be lost and that was not to be."""
        return 65 if self.lost and self.strict else 0


class PipelineReport(Report, kw_only=True):
    """All steps of one `chronicle run`."""

    verb: str = "run"
    run_id: str = ""
    skipped: str = ""
    """Why the run did nothing, if it did."""
    ingest: IngestReport | None = None
    rebuild: RebuildReport | None = None
    materialize: MaterializeReport | None = None
    verify: VerifyReport | None = None
    failures: dict[str, str] = {}
    """Derived steps that failed, with the reason; the facts are good."""

    def exit_code(self) -> int:
        """70 (a derived layer failed) wins over 65."""
        codes = [r.exit_code() for r in (self.ingest, self.rebuild, self.materialize, self.verify) if r is not None]
        if self.failures or 70 in codes:
            return 70
        return max(codes, default=0)


def encode(report: Report) -> bytes:
    """Indented JSON of a report."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def keep(report: Report, paths: DatasetPaths) -> None:
    """Store a report under `ops/<dataset>/reports/`.

    A report that cannot be written undoes nothing of what happened: it gets a warning instead.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{moment}-{report.verb.replace(' ', '-')}-{os.urandom(3).hex()}.json"
    try:
        files.make_dirs(paths.reports)
        files.write_atomic(f"{paths.reports}/{name}", encode(report))
    except ChronicleError as error:
        report.warnings.append(f"this report could not be stored: {error.message}")
