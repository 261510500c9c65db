"""What `doctor` looks at in a store: can it be reached, written, locked or conditionally written, and does its clock agree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from chronicle.errors import ChronicleError, ConfigError, NotFoundError, StorageError
from chronicle.storage import files, lanceio
from chronicle.storage.uri import is_s3

SKEW_SECONDS = 300.0
"""A store refuses requests whose clock is 15 minutes off; a third of it is worth a word."""
_ITSELF = "chronicle doctor"
"""An error that sends people here has no more to say to them."""
_PROBE = ".chronicle-probe-"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at; `hint` says what to do where it is not ok."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    code: int = ConfigError.exit_code
    """Exit code of a verb that meets this where it is not ok."""


def endpoint(lake: str) -> str:
    """Where requests for a lake go; blank for a local disk."""
    if not is_s3(lake):
        return ""
    from chronicle.storage import s3config

    return s3config.options().endpoint or "AWS"


def store(lake: str) -> Iterator[Check]:
    """Look at the store of a lake, the first things first; what cannot work after a failure is left out."""
    return _object_store(lake) if is_s3(lake) else _disk(lake)


def _disk(lake: str) -> Iterator[Check]:
    folder = lake
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        yield Check("lake", False, f"{folder} is no directory", "choose another --lake")
        return
    yield Check("lake", True, f"{lake} is there" if folder == lake else f"{lake} will be made in {folder}")
    yield tried("writable", lambda: _write_and_lock(folder), "make the directory writable for this user")


def _write_and_lock(folder: str) -> str:
    path = f"{folder}/{_PROBE}{os.urandom(8).hex()}"
    try:
        with files.locked(path):
            files.write_atomic(path, b"probe")
    finally:
        files.remove(path)
    return f"{folder} can be written and locked"


def _object_store(lake: str) -> Iterator[Check]:
    from chronicle.storage import s3, s3client
    from chronicle.storage.uri import split_s3

    bucket, key = split_s3(lake)
    credentials = tried("credentials", s3client.credentials, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
    yield credentials
    if not credentials.ok:
        return
    reached = tried(
        "reachable",
        lambda: _reach(lake),
        "check that endpoint, bucket and region are right, and that these keys are known there and may list the bucket",
    )
    yield reached
    if not reached.ok:
        return
    with s3.at(lake) as (client, _, _):
        skew = client.clock(bucket) - time.time()
    hint = "set the clock of this machine (or of the store)"
    yield Check("clock", abs(skew) <= SKEW_SECONDS, f"the store's clock is {skew:+.0f} s from ours", hint)
    yield tried(
        "conditional writes", lambda: _probed(bucket, key), "use a store with conditional writes that this user may write"
    )
    yield tried("Lance", lambda: _lance_reads(lake), "give Lance the same keys: environment or profile")


def _reach(lake: str) -> str:
    return f"{lake} is there" if files.exists(lake) else f"{lake} is empty" if not files.list_dir(lake) else lake


def _probed(bucket: str, key: str) -> str:
    from chronicle.storage import probe, s3

    with s3.at(s3.uri(bucket, key)) as (client, _, _):
        verdict = probe.probe(client, bucket, key)
        if verdict.honours:
            return "honoured"
        if client.options.single_writer:
            return f"{'; '.join(verdict.faults)}: taken, because single_writer is set"
    raise probe.untrusted(client, bucket, verdict)


def _lance_reads(lake: str) -> str:
    with suppress(NotFoundError):
        lanceio.open_latest(f"{lake}/{_PROBE}none.lance")
    return "reads with the same endpoint and keys"


def tried(name: str, work: Callable[[], str], hint: str) -> Check:
    """The check that some work makes: not ok where it raises, with the error's hint or else this one."""
    try:
        return Check(name, True, work())
    except ChronicleError as error:
        told = hint if not error.hint or _ITSELF in error.hint else error.hint
        return Check(name, False, error.message, told, _code_of(error))


def _code_of(error: ChronicleError) -> int:
    """A store that is away or full comes back; all else, a bucket that is not there too, is for the operator (design 8)."""
    return StorageError.exit_code if isinstance(error, StorageError) else ConfigError.exit_code
