"""objects.lance: texts that do not lie in their cell (physical.md 2.5).

A cell that begins with the marker is a descriptor of such a text. The peer puts long texts there; we only those that begin
with the marker themselves, which the peer would take for a descriptor. Names and ids are never descriptors, whatever they
begin with. Texts are named by their digest and never change, so that every version of the dataset is good for every reader
of an older one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as compute
from blake3 import blake3

from chronicle.errors import IntegrityError, NotFoundError
from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Object
from chronicle.layout import objects_path, remedy
from chronicle.projection.unknown import MARKER
from chronicle.storage import files, lanceio, versions

CONTENT = {
    "runs": "origin agent_tool_definitions parent child_session_ids notes continued_trajectory_ref "
    "unknown_key_counts task prompt",
    "steps": "message_value reasoning_content reasoning_effort_value observation env prompt",
    "tool_calls": "arguments result results",
}
"""Columns of each table whose cells may be descriptors."""

_DESCRIPTOR = re.compile(MARKER + r"([uj]):([iz]):([0-9a-f]{64}):(0|[1-9][0-9]{0,18}):[A-Za-z0-9_-]*\Z", re.ASCII)
_CODECS = {"i": 0, "z": 1}
_PREVIEW_BYTES = 256
_HELD_BYTES = 16 << 20
_UNKNOWN_FIELDS = "unknown_fields"


class Descriptor(NamedTuple):
    """What a cell says of a text that lies elsewhere."""

    kind: str
    """`u` text, `j` JSON text."""
    codec: str
    """`i` as it is, `z` zstd."""
    content_id: str
    """BLAKE3 hex digest of the text in UTF-8."""
    length: int
    """Bytes of the text in UTF-8."""


def described(cell: str) -> Descriptor | None:
    """The descriptor that a cell is, None where it is none, though it may begin like one."""
    found = _DESCRIPTOR.match(cell)
    return None if found is None else Descriptor(found[1], found[2], found[3], int(found[4]))


class Objects:
    """The texts of one store, looked up by digest."""

    def __init__(self, root: str, version: int) -> None:
        self._uri = objects_path(root)
        self._version = version
        self._opened: tuple[Any, pa.Table] | None = None

    def __len__(self) -> int:
        return int(self._rows()[1].num_rows)

    def texts(self, wanted: Iterable[Descriptor]) -> dict[str, str]:
        """The texts of descriptors by content id. Raises IntegrityError, naming it, for one that is missing or not itself."""
        by_id = {each.content_id: each for each in wanted}
        if not by_id:
            return {}
        dataset, rows = self._rows()
        places = compute.index_in(pa.array(by_id, pa.string()), value_set=rows["content_id"].combine_chunks()).to_pylist()
        for content_id, place in zip(by_id, places, strict=True):
            if place is None:
                raise self._broken(content_id, "is missing")
        found = rows.take(pa.array(places, pa.int64()))
        with lanceio.translated(self._uri, reading=True):
            blobs = dataset.take_blobs("payload", ids=found["_rowid"].to_pylist())
            payloads = [blob.readall() for blob in blobs]
        each = zip(by_id.values(), found["codec"].to_pylist(), found["raw_length"].to_pylist(), payloads, strict=True)
        return {descriptor.content_id: self._text(descriptor, *stored) for descriptor, *stored in each}

    def missing(self, content_ids: Sequence[str]) -> list[str]:
        """Those of some content ids under which no text lies."""
        known = self._rows()[1]["content_id"].combine_chunks()
        there = compute.is_in(pa.array(content_ids, pa.string()), value_set=known).to_pylist()
        return [content_id for content_id, is_there in zip(content_ids, there, strict=True) if not is_there]

    def _rows(self) -> tuple[Any, pa.Table]:
        if self._opened is None:
            try:
                dataset = lanceio.open_version(self._uri, self._version)
            except NotFoundError as error:  # it was named: that it is gone is damage
                raise IntegrityError(error.message, hint=remedy(self._uri), path=self._uri) from error
            with lanceio.translated(self._uri, reading=True):
                self._opened = dataset, dataset.to_table(columns=["content_id", "codec", "raw_length"], with_row_id=True)
        return self._opened

    def _text(self, descriptor: Descriptor, codec: int, length: int, payload: bytes) -> str:
        if (_CODECS[descriptor.codec], descriptor.length) != (codec, length):
            raise self._broken(descriptor.content_id, "is stored in another form than its cell says")
        try:
            raw = payload if descriptor.codec == "i" else pa.decompress(payload, length, codec="zstd", asbytes=True)
            text = raw.decode()
        except (OSError, ValueError) as error:
            raise self._broken(descriptor.content_id, f"does not read: {error}") from error
        if len(raw) != length or blake3(raw).hexdigest() != descriptor.content_id:
            raise self._broken(descriptor.content_id, "holds other bytes than its name says")
        return str(text)

    def _broken(self, content_id: str, what: str) -> IntegrityError:
        return IntegrityError(
            f"{self._uri}: the text {content_id} {what}",
            hint="run `chronicle rebuild --full`, or leave out the column that needs it",
            path=self._uri,
            content_id=content_id,
        )


def filled(batch: pa.RecordBatch, table: str, objects: Objects) -> pa.RecordBatch:
    """A batch with texts in the place of descriptors, and JSON columns of the peer as text, their descriptors filled too."""
    names = frozenset(CONTENT[table].split())
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_json(column.type):
            columns.append(_filled_inside(column.cast(pa.string()), objects, is_nested=name == _UNKNOWN_FIELDS))
        else:
            columns.append(_filled(column, objects) if name in names else column)
    return pa.RecordBatch.from_arrays(columns, schema=as_text(batch.schema))


def as_text(schema: pa.Schema) -> pa.Schema:
    """The schema of a table with its JSON columns as text."""
    return pa.schema([pa.field(each.name, pa.string(), each.nullable) if is_json(each.type) else each for each in schema])


def is_json(kind: pa.DataType) -> bool:
    """Whether a column is one of the peer's JSON columns."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name in ("arrow.json", "lance.json")


def _filled(column: pa.Array, objects: Objects) -> pa.Array:
    marked = compute.indices_nonzero(compute.starts_with(column, MARKER)).to_pylist()
    if not marked:
        return column
    cells = column.to_pylist()
    descriptors = {at: descriptor for at in marked if (descriptor := described(cells[at])) is not None}
    texts = objects.texts(descriptors.values())
    for at, descriptor in descriptors.items():
        cells[at] = texts[descriptor.content_id]
    return pa.array(cells, column.type)


def _filled_inside(column: pa.Array, objects: Objects, *, is_nested: bool) -> pa.Array:
    """JSON objects whose members may be descriptors (`unknown_fields`: the members of `sources/*/fields`)."""
    marked = compute.indices_nonzero(compute.match_substring(column, MARKER.replace("\x1e", "\\u001e"))).to_pylist()
    if not marked:
        return column
    cells = column.to_pylist()
    values = {at: jsontext.parse(cells[at]) for at in marked}
    holders = [holder for value in values.values() for holder in (_fields(value) if is_nested else [value])]
    objects_found = [holder for holder in holders if isinstance(holder, Object)]
    texts = objects.texts(descriptor for holder in objects_found for _, _, descriptor in _members(holder))
    for holder in objects_found:
        for at, key, descriptor in list(_members(holder)):
            holder[at] = key, jsontext.parse(texts[descriptor.content_id])
    for at, value in values.items():
        cells[at] = jsontext.dump(value).decode()
    return pa.array(cells, column.type)


def _members(holder: Object) -> Iterator[tuple[int, str, Descriptor]]:
    for at, (key, value) in enumerate(holder):
        if isinstance(value, str) and (descriptor := described(value)) is not None:
            yield at, key, descriptor


def _fields(value: Json) -> list[Json]:
    """What stands at `sources/*/fields`."""
    return [fields for source in _under(value, "sources") for fields in _under(source, "fields", is_leaf=True)]


def _under(value: Json, key: str, *, is_leaf: bool = False) -> list[Json]:
    found = [member for name, member in value if name == key] if isinstance(value, Object) else []
    if is_leaf:
        return found
    return [member for each in found if isinstance(each, Object) for _, member in each]


class Filing:
    """Puts texts that begin with the marker into objects.lance while their batches go by."""

    def __init__(self, root: str, pinned: int | None) -> None:
        self._root = root
        self._uri = objects_path(root)
        self._pinned = pinned
        self._held: dict[str, bytes] = {}
        self._bytes = 0
        self._anew = self._repair = False

    def begin_anew(self, *, repair: bool) -> None:
        """From here on every text that the tables need comes by: those that lie there are left to older states.

        `repair`: where the dataset does not read it is removed; else the texts may come out of it, and it must stay.
        """
        self._anew, self._repair = True, repair

    def of(self, batches: Iterable[Mapping[str, pa.RecordBatch]]) -> Iterator[dict[str, pa.RecordBatch]]:
        """The batches with descriptors in the place of such texts."""
        for parts in batches:
            yield {table: self._filed(table, batch) for table, batch in parts.items()}

    def version(self) -> int:
        """The version of objects.lance that holds every text filed so far; it is on the disk."""
        if self._repair and not _reads(self._uri):
            files.remove_tree(self._uri)
        self._repair = False
        if self._pinned is None or not files.dir_exists(os.path.join(self._uri, "_versions")):
            self._pinned = _created(self._uri)
        if self._held:
            self._store()
        return self._pinned

    def _filed(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in CONTENT[table].split():
            column = batch.column(name)
            marked = compute.indices_nonzero(compute.starts_with(column, MARKER)).to_pylist()
            if marked:
                cells = column.to_pylist()
                for at in marked:
                    cells[at] = self._descriptor(cells[at])
                at = batch.schema.get_field_index(name)
                batch = batch.set_column(at, batch.schema.field(at), pa.array(cells, column.type))
        return batch

    def _descriptor(self, text: str) -> str:
        raw = text.encode()
        content_id = blake3(raw).hexdigest()
        if content_id not in self._held:
            self._held[content_id] = raw
            self._bytes += len(raw)
            if self._bytes > _HELD_BYTES:
                self.version()
        return f"{MARKER}u:i:{content_id}:{len(raw)}:{_preview(raw)}"

    def _store(self) -> None:
        assert self._pinned is not None
        # A dead writer may have added texts above the pinned version: they are as good as ours.
        there = lanceio.open_latest(self._uri)
        latest = int(there.version)
        known = files.file_states(self._uri)
        new = list(self._held) if self._anew else Objects(self._root, latest).missing(list(self._held))
        if new:
            schema = _schema(lanceio.lance())
            batch = _batch(schema, {content_id: self._held[content_id] for content_id in new})
            gone = [piece.fragment_id for piece in there.get_fragments()] if self._anew else []
            latest = lanceio.append(self._uri, latest, schema, (batch,), replacing=gone)
            files.sync_tree(self._uri, known)
        self._anew = False
        self._pinned = latest
        self._held = {}
        self._bytes = 0


def _preview(raw: bytes) -> str:
    from base64 import urlsafe_b64encode

    whole = raw[:_PREVIEW_BYTES].decode(errors="ignore").encode()
    return urlsafe_b64encode(whole).rstrip(b"=").decode()


def _batch(schema: pa.Schema, texts: Mapping[str, bytes]) -> pa.RecordBatch:
    count = len(texts)
    lengths = pa.array([len(raw) for raw in texts.values()], pa.uint64())
    columns = {
        "content_id": pa.array(texts, pa.string()),
        "logical_type": pa.array([1] * count, pa.uint8()),
        "media_type": pa.array(["text/plain; charset=utf-8"] * count),
        "raw_length": lengths,
        "stored_length": lengths,
        "codec": pa.array([0] * count, pa.uint8()),
        "preview": pa.array([raw[:_PREVIEW_BYTES].decode(errors="ignore") for raw in texts.values()]),
        "payload": lanceio.lance().blob_array(list(texts.values())),
        "created_at_ms": pa.array([0] * count, pa.int64()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _reads(uri: str) -> bool:
    """Whether the dataset that lies there can be gone on from, and its old versions be removed some day."""
    try:
        return not files.dir_exists(uri) or bool(versions.versions_of(uri))
    except (IntegrityError, NotFoundError):
        return False


def _created(uri: str) -> int:
    """The version of the dataset, which the peer wants even where it is empty; made where it is missing."""
    if files.dir_exists(os.path.join(uri, "_versions")):
        return int(lanceio.open_latest(uri).version)
    files.remove_tree(uri)
    version = lanceio.create(uri, _schema(lanceio.lance()), ())
    files.sync_tree(uri)
    return version


def _schema(module: Any) -> pa.Schema:
    return pa.schema(
        [
            pa.field("content_id", pa.string(), nullable=False),
            pa.field("logical_type", pa.uint8(), nullable=False),
            pa.field("media_type", pa.string()),
            pa.field("raw_length", pa.uint64(), nullable=False),
            pa.field("stored_length", pa.uint64(), nullable=False),
            pa.field("codec", pa.uint8(), nullable=False),
            pa.field("preview", pa.string()),
            module.blob_field("payload", nullable=False),
            pa.field("created_at_ms", pa.int64(), nullable=False),
        ]
    )
