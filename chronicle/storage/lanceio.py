"""The only place that imports Lance: import, write with dense encodings, open pinned versions, translate its errors.

Lance does no fsync on a local disk: whoever publishes a version calls `files.sync_tree` on it first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from chronicle.errors import ChronicleError, ConfigError, ConflictError, IntegrityError, NotFoundError, StorageError
from chronicle.layout import remedy
from chronicle.storage import files
from chronicle.storage.uri import S3, is_s3

STORAGE_VERSION = "2.2"
MAX_ROWS_PER_FILE = 32768
"""More fragments, but the writer lets go of its buffers: flat memory."""
DENSE = {
    b"lance-encoding:compression": b"zstd",
    b"lance-encoding:compression-level": b"1",
    b"lance-encoding:structural-encoding": b"miniblock",
    b"lance-encoding:minichunk-size": b"262144",
}
"""Field metadata of a column of long texts: all four together, or Lance compresses each value alone."""

BATCH_BYTES = 64 << 20
FEWEST_BATCH_ROWS = 32
_UNPACKED = 3
"""Times its stored size that text takes."""

_M_MMAP_THRESHOLD = -3
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_SOURCE_PLACE = re.compile(r",? ?/(?:home|rustc)/\S+\.rs:\d+:\d+")
_NO_ANSWER = re.compile(r"status code: (?:5\d\d|429)|HTTP error|error sending request|timed? ?out|Connection re[sf]", re.I)
_REFUSED = re.compile(r"status code: (?:30\d|40[0135])|CredentialsNotLoaded|no providers in chain|MissingRegion", re.I)
_CONFLICT = re.compile(r"ommit conflict|Incompatible transaction|concurrent transaction")
_FOREIGN = (OSError, ValueError, RuntimeError, pa.ArrowException)
_import_lock = threading.Lock()
_module: Any = None


class _Later:
    """Finds no pandas: importing it costs 0.9 s, and pyarrow looks again when pandas is really needed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name="pandas")


@contextmanager
def _pandas_hidden() -> Iterator[None]:
    if "pandas" in sys.modules:
        yield
        return
    finder = _Later()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _pandas_hidden():
    pa.scalar(0)  # the first scalar or array makes pyarrow look for pandas: let it look now


def lance() -> Any:
    """Return the `lance` module, importing it at the first call."""
    global _module
    if _module is None:
        with _import_lock:
            if _module is None:
                _module = _import_lance()
    return _module


def _import_lance() -> Any:
    _keep_freed_memory_out_of_heaps()
    os.environ.setdefault("LANCE_LOG", "error")
    with _pandas_hidden():
        import lance as module
        import lance.fragment
    return module


def _keep_freed_memory_out_of_heaps() -> None:
    """Fix glibc's mmap threshold at 1 MiB: it would rise with the first large block freed, and memory with the corpus."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def located(uri: str, *, writing: bool = False) -> tuple[str, dict[str, Any]]:
    """How Lance is told where a dataset is: the URI as it reads one, and keyword arguments.

    Lance decodes what is percent-encoded in the URI of an object store, and our paths are text. Raises ConfigError where
    something is to be written to a store that cannot be trusted with it.
    """
    if not is_s3(uri):
        return uri, {}
    from chronicle.storage import s3
    from chronicle.storage.s3client import lance_options

    if writing:
        s3.check_writable(uri)
    return S3 + quote(uri.removeprefix(S3), safe="/"), {"storage_options": lance_options()}


def commits_may_meet(uri: str) -> bool:
    """Whether two commits to one dataset at a time lose nothing: not where conditions are ignored, by a single writer either."""
    if not is_s3(uri):
        return True
    from chronicle.storage.s3config import options

    return not options().single_writer


@contextmanager
def translated(uri: str, *, reading: bool, changing: bool = False) -> Iterator[None]:
    """Say Lance's and Arrow's errors in ours: the operating system's by `files.from_oserror`, the rest by what was done.

    Reading a pinned version that does not decode is an IntegrityError, a failed write a StorageError. `changing`: a write that
    reads what is there (a deletion, an index); what fails is the reading then, unless somebody wrote meanwhile.
    """
    try:
        yield
    except BaseException as error:  # Lance panics on some damaged files, and a panic is no Exception
        foreign = isinstance(error, _FOREIGN) or type(error).__name__ == "PanicException"
        if isinstance(error, ChronicleError) or not foreign:
            raise
        raise _from_lance(error, uri, reading=reading, changing=changing) from error


def _from_lance(error: BaseException, uri: str, *, reading: bool, changing: bool) -> ChronicleError:
    text = _SOURCE_PLACE.sub("", str(error)).strip()
    if is_s3(uri) and (failure := _of_store(text, uri)) is not None:
        return failure
    if not reading and _CONFLICT.search(text):
        return ConflictError(f"{uri}: somebody wrote here meanwhile", hint="run again", kind="commit-conflict", path=uri)
    number = _errno_of(error, text)
    if number is not None and not ((reading or changing) and number == errno.ENOENT):
        return files.from_oserror(OSError(number, os.strerror(number)), uri)
    if reading or changing:
        return IntegrityError(f"{uri}: stored data does not read: {text}", hint=remedy(uri), path=uri)
    return StorageError(f"{uri}: write failed: {text}", hint="check the store, then run again", path=uri, transient=False)


def is_outage(text: str) -> bool:
    """Whether an error's text says that an object store did not answer: nothing is known about the data then."""
    return "S3 error" in text and _NO_ANSWER.search(text) is not None


def _of_store(text: str, uri: str) -> ChronicleError | None:
    """What the object store said or did not say; None where it is not to blame."""
    short = text.partition("<?xml")[0].strip()
    if "NoSuchBucket" in text:
        return NotFoundError(f"{uri}: the bucket does not exist", hint="create it, or correct the URI", path=uri)
    if _REFUSED.search(text):
        return ConfigError(f"{uri}: {short}", hint="check keys, region and permissions with `chronicle doctor`", path=uri)
    if "non-partial response" in text:
        return StorageError(f"{uri}: {short}", hint="this store cannot be asked for parts of objects: use another", path=uri)
    if _NO_ANSWER.search(text):
        return StorageError(f"{uri}: {short}", hint="run again when the store answers", path=uri, transient=True)
    return None


def _errno_of(error: BaseException, text: str) -> int | None:
    if match := _OS_ERROR.search(text):
        return int(match.group(1))
    if "No space left" in text or "StorageFull" in text:
        return errno.ENOSPC
    if "quota exceeded" in text:
        return errno.EDQUOT
    return error.errno if isinstance(error, OSError) else None


def create(uri: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], encode: Collection[str] = ()) -> int:
    """Write a new dataset and return its version (1). `encode` names the columns of long texts.

    No version carries field metadata: the peer refuses such columns. Raises ConflictError when something is at `uri`
    already, StorageError or ConfigError when writing fails; then part of the directory may be left to the caller.
    """
    module = lance()
    if files.dir_exists(uri):
        raise ConflictError(f"{uri} exists already", hint="write under a new id", kind="already-exists", path=uri)
    fragments = _write(uri, schema, batches, encode, mode="create")
    operation = module.LanceOperation.Overwrite(schema, fragments)
    where, options = located(uri, writing=True)
    with translated(uri, reading=False):
        version = int(module.LanceDataset.commit(where, operation, **options).version)
    if version != 1:
        raise ConflictError(f"{uri}: somebody else wrote here too", hint="write under a new id", kind="already-exists", path=uri)
    return version


def append(
    uri: str,
    version: int,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    encode: Collection[str] = (),
    *,
    replacing: Collection[int] = (),
) -> int:
    """Append to `version` of a dataset and return the new version, `version + 1`.

    `replacing`: ids of its last fragments, or of all, which the batches take the place of; indices are not carried over.
    Raises ConflictError when somebody committed in between: Lance has then put the rows behind the stranger's, in a version
    that must not be published; or (`commit-conflict`) nothing has landed, because the stranger replaced the same fragments.
    """
    # The mode makes the fragment writer follow our encodings instead of the dataset's schema; the commit is an append.
    fragments = _write(uri, schema, batches, encode, mode="overwrite")
    operations = lance().LanceOperation
    if replacing:
        operation = operations.Update(removed_fragment_ids=sorted(replacing), new_fragments=list(fragments))
        return _committed(uri, version, operation)
    return _committed(uri, version, operations.Append(fragments))


def _committed(uri: str, version: int, operation: Any) -> int:
    with translated(uri, reading=False):
        where, options = located(uri, writing=True)
        new = int(lance().LanceDataset.commit(where, operation, read_version=version, **options).version)
    if new != version + 1:
        raise ConflictError(
            f"{uri}: version {version} was not the last one", hint="run again", kind="version-moved", path=uri, version=new
        )
    return new


def _write(uri: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], encode: Collection[str], mode: str) -> Sequence[Any]:
    encoded = encoded_schema(schema, encode)
    failure: list[Exception] = []
    reader = pa.RecordBatchReader.from_batches(encoded, _remembering(batches, encoded, failure))
    where, options = located(uri, writing=True)
    try:
        with translated(uri, reading=False):
            fragments: Sequence[Any] = lance().fragment.write_fragments(
                reader,
                where,
                schema=encoded,
                **options,
                mode=mode,
                data_storage_version=STORAGE_VERSION,
                max_rows_per_file=MAX_ROWS_PER_FILE,
            )
    except ChronicleError:
        if failure:
            raise failure[0] from None  # the source of the batches failed, not Lance
        raise
    return fragments


def _remembering(batches: Iterable[pa.RecordBatch], schema: pa.Schema, failure: list[Exception]) -> Iterator[pa.RecordBatch]:
    """Hand the batches on under the encoded schema; keep the error of their source, which Lance turns into text."""
    try:
        for batch in batches:
            if batch.schema.names != schema.names or batch.schema.types != schema.types:
                raise TypeError(f"batch of {batch.schema} for a dataset of {schema}")  # pyarrow would cast by position
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except Exception as error:
        failure.append(error)
        raise


def encoded_schema(schema: pa.Schema, encode: Collection[str]) -> pa.Schema:
    """Return the schema with the dense encoding on the named columns. Raises KeyError for a column it does not have."""
    for name in encode:
        schema.field(name)
    return pa.schema([field.with_metadata(DENSE) if field.name in encode else field for field in schema])


def batch_rows(dataset: Any, most: int) -> int:
    """Rows of a batch of a scan, at most `most`, that are likely to need less than BATCH_BYTES while they are decoded.

    Lance decodes as many rows as `batch_size` says at a time; `batch_size_bytes` only cuts what was decoded (measured).
    """
    if not isinstance(dataset, lance().LanceDataset):
        return most  # a view that has bounds of its own
    widest = 1
    for fragment in dataset.get_fragments():
        stored = sum(file.file_size_bytes or 0 for file in fragment.metadata.files)
        widest = max(widest, _UNPACKED * stored // max(fragment.physical_rows, 1))
    return max(FEWEST_BATCH_ROWS, min(most, BATCH_BYTES // widest))


def open_latest(uri: str) -> Any:
    """Open the newest version of a dataset that no manifest pins (receipts). Raises as `open_version` does."""
    return _open(uri, None)


def open_version(uri: str, version: int) -> Any:
    """Open exactly one version (`lance.LanceDataset`).

    Raises NotFoundError when the dataset or the version is not there, IntegrityError when its manifest does not read.
    """
    return _open(uri, version)


def _open(uri: str, version: int | None) -> Any:
    try:
        with translated(uri, reading=True):
            where, options = located(uri)
            return lance().dataset(where, version=version, **options)
    except IntegrityError as error:
        if "not found" not in str(error.__cause__).lower():
            raise
        what = "the dataset" if version is None else f"version {version}"
        raise NotFoundError(
            f"{uri}: {what} does not exist", hint="restore it, or rebuild what named it", path=uri, version=version
        ) from error.__cause__
