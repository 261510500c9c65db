"""What each verb is asked to do. One frozen class a verb; the command line, flows and libraries fill the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from chronicle.events.manifest import EventWriterFence
from chronicle.layout import DatasetPaths

BATCH_BYTES = 256 << 20
"""Of a micro-batch: each end of one waits for the encoder, a sync and a swap (docs/adr/0009)."""

Progress = Callable[[int, int], None]
"""Called with (done, total) in the unit of the verb (bytes of sources, fact rows, files)."""


def no_progress(done: int, total: int) -> None:
    """Report progress to nobody."""


class IngestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sources -> facts."""

    paths: DatasetPaths
    sources: tuple[str, ...]
    """As typed: file, directory, glob, `NAME=PATH`, `-`."""
    format: str | None = None
    """Force this format instead of detecting it."""
    allow_quarantine: bool = False
    """Do not let quarantined sources change the exit code."""
    since_ns: int | None = None
    """Only files modified at or after this instant (ns since 1970)."""
    until_ns: int | None = None
    max_source_bytes: int = 2 << 30
    """Limit of one source after decompression."""
    max_ratio: int = 200
    """Limit of the decompression ratio."""
    batch_bytes: int = BATCH_BYTES
    """A micro-batch is published when it holds at least this many source bytes, or 20,000 receipts."""
    workers: int = 1
    dry_run: bool = False
    progress: Progress = no_progress


class RebuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Facts -> the three tables."""

    paths: DatasetPaths
    full: bool = False
    dry_run: bool = False
    lease_seconds: float = 60.0
    progress: Progress = no_progress


class MaterializeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Facts -> AgenticMD files."""

    paths: DatasetPaths
    reasoning: bool = False
    """Write reasoning too, in a collapsed block."""
    dry_run: bool = False
    progress: Progress = no_progress


class MaintainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Merge, index and tidy up a dataset. What nobody asked for alone is all done: `compact`, `index` and `vacuum`."""

    paths: DatasetPaths
    compact: bool = True
    index: bool = True
    vacuum: bool = True
    full: bool = False
    """Rewrite the log to one segment, and tables and receipts to as few pieces as they need."""
    retention_seconds: float = 7 * 86400.0
    """What nobody could reach for so long is removed."""
    lease_seconds: float = 60.0
    dry_run: bool = False
    group: int = 8
    """Neighbouring segments of a level that become one of the next."""
    index_rows: int = 8192
    """Segments with fewer rows are scanned faster than looked up in."""
    progress: Progress = no_progress


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Facts or tables -> files."""

    paths: DatasetPaths
    to: str
    """A directory; with a name that ends in `.jsonl` one file for all documents."""
    exact: bool = False
    """Give back the bytes that came in, from facts."""
    all_versions: bool = False
    """With `exact`: superseded sources too."""
    format: str | None = None
    profile: Literal["seed", "peer"] = "seed"
    where: str | None = None
    """Only runs for which this SQL expression over `runs` is true."""
    session: str | None = None
    """Only runs of this session."""
    since_ns: int | None = None
    """Only runs whose first time stamp is not before this instant (ns since 1970)."""
    skip_copied: bool = False
    """Leave out turns that were replayed from an earlier run."""
    skip_zero_llm: bool = False
    """Leave out turns of the agent that no model made."""
    reasoning: bool = False
    """Show reasoning in AgenticMD, in a collapsed block."""
    overwrite: bool = False
    dry_run: bool = False
    progress: Progress = no_progress

    @property
    def is_selection(self) -> bool:
        """Whether only some runs are asked for."""
        return self.where is not None or self.session is not None or self.since_ns is not None

    @property
    def is_one_file(self) -> bool:
        """Whether all documents go into one file of JSON lines."""
        return self.to.endswith(".jsonl") and not self.exact

    @property
    def is_filtered(self) -> bool:
        """Whether turns may be left out, so that a document is not what its source said."""
        return self.skip_copied or self.skip_zero_llm


class VerifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Are facts, tables and Markdown what they should be?"""

    paths: DatasetPaths
    sample: int | None = None
    """Check this many sources only; None: all."""
    since_row: int = 0
    """Only sources that the facts from this row on speak of (a run verifies what it touched)."""
    progress: Progress = no_progress


class QueryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One SELECT over `runs`, `steps`, `tool_calls`."""

    sql: str
    lake: str = ""
    dataset: str | None = None
    """None: all datasets of the lake, with a column `dataset`."""
    files: tuple[str, ...] = ()
    """Sources to ask instead of a lake, as `ingest` takes them."""
    limit: int | None = None
    timeout_seconds: float = 300.0
    memory: str = "2GB"
    max_bytes: str = "4GB"
    """Of all rows that come out."""
    max_source_bytes: int = 2 << 30
    """Limit of one file after decompression."""
    max_ratio: int = 200
    """Limit of the decompression ratio."""


class FindOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where an id or words are, in a dataset or a whole lake."""

    lake: str
    text: str
    dataset: str | None = None
    words: bool = False
    """Look for words also where the text is an id."""
    limit: int | None = None


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or a whole lake -> one HTML page."""

    lake: str
    to: str
    """Path of the page."""
    dataset: str | None = None
    overwrite: bool = False
    timeout_seconds: float = 300.0
    """For each of its questions."""
    memory: str = "2GB"
    dry_run: bool = False


class ConvertOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A file of one format -> a file of another."""

    source: str
    """Path, or `-` for standard input."""
    target: str
    """Path, or `-` for standard output."""
    from_: str
    to: str
    strict: bool = False
    """Write nothing where something would be lost."""
    residual: Literal["carry", "drop"] = "carry"
    """Whether what the target cannot say travels in `extra.chronicle`."""
    profile: Literal["seed", "peer"] = "seed"
    reasoning: bool = False
    """Show reasoning in AgenticMD, in a collapsed block."""
    dry_run: bool = False


class DrainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A spool -> facts."""

    paths: DatasetPaths
    spool: str
    """Directory of an `EventSpool`."""
    batch_bytes: int = BATCH_BYTES
    """A micro-batch is published when it holds at least this many bytes of records."""
    wait_seconds: float = 60.0
    """Patience with another drain of the same spool."""
    fence: EventWriterFence | None = None
    """The producer's own fence; else the drain takes the next epoch."""
    dry_run: bool = False
    progress: Progress = no_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Sources -> facts -> tables and Markdown, verified. Plain JSON values, so that a scheduler can keep them."""

    lake: str
    """Absolute path."""
    dataset: str
    sources: tuple[str, ...] = ()
    format: str | None = None
    allow_quarantine: bool = False
    reasoning: bool = False
    since_ns: int | None = None
    until_ns: int | None = None
    max_source_bytes: int = 2 << 30
    max_ratio: int = 200
    batch_bytes: int = BATCH_BYTES
    workers: int = 1
    lease_seconds: float = 60.0
    retention_seconds: float = 7 * 86400.0
    """Of the `maintain` flow."""
    dry_run: bool = False

    @property
    def paths(self) -> DatasetPaths:
        """Places of the dataset."""
        return DatasetPaths(self.lake, self.dataset)

    def ingest(self) -> IngestOptions:
        """Options of its first step."""
        return IngestOptions(
            paths=self.paths,
            sources=self.sources,
            format=self.format,
            allow_quarantine=self.allow_quarantine,
            since_ns=self.since_ns,
            until_ns=self.until_ns,
            max_source_bytes=self.max_source_bytes,
            max_ratio=self.max_ratio,
            batch_bytes=self.batch_bytes,
            workers=self.workers,
            dry_run=self.dry_run,
        )

    def drain(self, spool: str) -> DrainOptions:
        """Options of a drain into the dataset."""
        return DrainOptions(paths=self.paths, spool=spool, batch_bytes=self.batch_bytes, dry_run=self.dry_run)

    def rebuild(self) -> RebuildOptions:
        """Options of the step that makes the tables."""
        return RebuildOptions(paths=self.paths, lease_seconds=self.lease_seconds, dry_run=self.dry_run)

    def materialize(self) -> MaterializeOptions:
        """Options of the step that writes Markdown."""
        return MaterializeOptions(paths=self.paths, reasoning=self.reasoning, dry_run=self.dry_run)

    def maintain(self) -> MaintainOptions:
        """Options of the `maintain` flow: everything that maintenance does."""
        return MaintainOptions(
            paths=self.paths,
            retention_seconds=self.retention_seconds,
            lease_seconds=self.lease_seconds,
            dry_run=self.dry_run,
        )

    def verify(self, since_row: int) -> VerifyOptions:
        """Options of the last step: only the sources that the run touched."""
        return VerifyOptions(paths=self.paths, since_row=since_row)
