"""Requests to an object store, through botocore: one call, its answer, its errors said in one way, bounded retries.

botocore gives session, credentials and signatures. Its retries are off: one that nobody sees turns a writer's own win into a
loss. Listings are always the store's of this moment: a cached one hides what arrived since (bug reports D44).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from chronicle.errors import ChronicleError, ConfigError
from chronicle.storage.s3config import DEFAULT_REGION, S3Options, options
from chronicle.storage.s3errors import S3Error, failure_of

ATTEMPTS = 6
PATIENCE_SECONDS = 60.0
"""No new attempt begins after so long."""
LANCE_RETRIES = 6
LANCE_CONNECT_SECONDS = 5
DELETES_A_REQUEST = 1000
NONCE = "chronicle-write"
"""Name of the user metadata that says which write made an object."""
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0

Result = TypeVar("Result")


class Head(msgspec.Struct, frozen=True):
    """What an answer says about an object. `etag` is opaque and quoted as it came; `modified` counts whole seconds."""

    size: int
    etag: str
    version_id: str
    modified: int
    nonce: str = ""


class Listed(msgspec.Struct, frozen=True):
    """One object of a listing."""

    key: str
    size: int
    etag: str
    modified: int


class Client:
    """Requests with one set of options. Safe for threads; a process that was forked makes its own."""

    def __init__(self, chosen: S3Options) -> None:
        self.options = chosen
        self._region = _region(chosen)
        self._made: Any = None
        self._making = threading.Lock()

    @property
    def endpoint(self) -> str:
        """Where requests go, for messages."""
        return self.options.endpoint or "AWS"

    def get(self, bucket: str, key: str, *, first_bytes: int | None = None) -> tuple[bytes, Head]:
        """An object's bytes (or the first of them) and what the very same answer says about it."""
        extra = {} if first_bytes is None else {"Range": f"bytes=0-{first_bytes - 1}"}

        def work(s3: Any) -> tuple[bytes, Head]:
            answer = s3.get_object(Bucket=bucket, Key=key, **extra)
            with closing(answer["Body"]) as body:
                return body.read(), _head(answer)

        return self.patiently(lambda: self.once(work))

    def pieces(self, bucket: str, key: str, piece_bytes: int = 8 << 20) -> tuple[Head, Iterator[bytes]]:
        """An object too large to hold: its head, and its bytes as they come. Not tried again."""
        answer = self.once(lambda s3: s3.get_object(Bucket=bucket, Key=key))
        body = answer["Body"]

        def read() -> Iterator[bytes]:
            while piece := self.once(lambda _: body.read(piece_bytes)):
                yield piece
            body.close()

        return _head(answer), read()

    def head(self, bucket: str, key: str) -> Head | None:
        """What the store says about an object; None where there is none."""
        try:
            return _head(self._ask("head_object", Bucket=bucket, Key=key))
        except S3Error as error:
            if error.kind != "missing":
                raise
            return None

    def put(self, bucket: str, key: str, data: bytes, **conditions: Any) -> str:
        """Write an object, once, and return its ETag. Raises S3Error whatever happens: the caller knows what a retry means."""
        answer = self.once(lambda s3: s3.put_object(Bucket=bucket, Key=key, Body=data, **conditions))
        if "ETag" not in answer:
            raise S3Error("cut", "NoETag", 200, "the answer has no ETag")
        return str(answer["ETag"])

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object; nothing happens where there is none."""
        self._ask("delete_object", Bucket=bucket, Key=key)

    def delete_all(self, bucket: str, keys: list[str]) -> None:
        """Remove objects, many with one request where the store can do that."""
        for at in range(0, len(keys), DELETES_A_REQUEST):
            some = keys[at : at + DELETES_A_REQUEST]
            request = {"Objects": [{"Key": key} for key in some], "Quiet": True}
            try:
                answer = self._ask("delete_objects", Bucket=bucket, Delete=request)
                left = [each["Key"] for each in answer.get("Errors", ())]
            except S3Error as error:
                if error.kind != "refused":
                    raise
                left = some
            for key in left:
                self.delete(bucket, key)

    def objects(self, bucket: str, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[Listed]:
        """Objects whose keys begin with `prefix`, in order of their keys, as the store has them now."""
        extra = {"StartAfter": start_after} if start_after else {}
        for page in self._pages(bucket, prefix, limit, **extra):
            for one in page.get("Contents", ()):
                yield Listed(one["Key"], int(one["Size"]), str(one.get("ETag", "")), _seconds(one["LastModified"]))

    def names(self, bucket: str, prefix: str) -> tuple[list[str], list[str]]:
        """Names directly below `prefix` (empty, or ending in a slash): (objects, directories)."""
        files: list[str] = []
        folders: list[str] = []
        for page in self._pages(bucket, prefix, None, Delimiter="/"):
            files += (one["Key"][len(prefix) :] for one in page.get("Contents", ()))
            folders += (one["Prefix"][len(prefix) : -1] for one in page.get("CommonPrefixes", ()))
        return [name for name in files if name], [name for name in folders if name]

    def clock(self, bucket: str) -> float:
        """What the store's clock says (seconds since 1970), by the header of an answer."""
        answer = self._ask("list_objects_v2", Bucket=bucket, Prefix="", MaxKeys=1)
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()

    def _pages(self, bucket: str, prefix: str, limit: int | None, **extra: Any) -> Iterator[dict[str, Any]]:
        if limit is not None:
            extra["MaxKeys"] = limit
        while True:
            page = self._ask("list_objects_v2", Bucket=bucket, Prefix=prefix, **extra)
            yield page
            if not page.get("IsTruncated") or limit is not None:
                return
            extra = {**extra, "ContinuationToken": page["NextContinuationToken"]}

    def _ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            answer: dict[str, Any] = self.once(lambda s3: getattr(s3, method)(**arguments))
            return answer

        return self.patiently(request)

    def once(self, work: Callable[[Any], Result]) -> Result:
        """Run one request and return its answer. Raises S3Error, ConfigError for options that cannot work."""
        try:
            return work(self._s3())
        except ChronicleError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure from error

    def _s3(self) -> Any:
        """The client of the library, made at the first request, once for all threads."""
        if self._made is None:
            from chronicle.storage import s3session

            with self._making:
                self._made = self._made or s3session.client(self.options, self._region)
        return self._made

    def patiently(self, request: Callable[[], Result]) -> Result:
        """Send a request again while that may help, with growing pauses, ATTEMPTS times at most."""
        began = time.monotonic()
        for attempt in range(ATTEMPTS):
            try:
                return request()
            except S3Error as error:
                if not error.transient or attempt == ATTEMPTS - 1 or time.monotonic() - began > PATIENCE_SECONDS:
                    raise
            pause(attempt)
        raise AssertionError("unreachable")


def client() -> Client:
    """The client for the options that hold now."""
    return _client(options(), os.getpid())


@lru_cache(maxsize=16)
def _client(chosen: S3Options, pid: int) -> Client:
    return Client(chosen)


def pause(attempt: int) -> None:
    """Wait before the next attempt, by chance between nothing and a bound that doubles."""
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)))


def credentials() -> str:
    """Where keys come from, in words, without any of them. Raises ConfigError where there are none."""
    chosen = options()
    if chosen.anonymous:
        return "none: requests are anonymous"
    if chosen.key and chosen.secret:
        return "keys of the environment"
    import botocore.exceptions

    try:
        found = _session(chosen.profile).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise ConfigError(f"AWS profile {chosen.profile!r}: {error}", hint="correct the profile, or AWS_PROFILE") from error
    if found is None:
        raise ConfigError("there are no keys", hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
    return f"{found.method}" + (f", profile {chosen.profile}" if chosen.profile else "")


def lance_options(chosen: S3Options | None = None) -> dict[str, str]:
    """`storage_options` for Lance: the same endpoint and credentials, bounded retries and timeouts."""
    chosen = chosen or options()
    found = {
        "aws_region": _region(chosen),
        "client_max_retries": str(LANCE_RETRIES),
        "client_retry_timeout": str(int(PATIENCE_SECONDS)),
        "timeout": f"{int(PATIENCE_SECONDS)}s",
        "connect_timeout": f"{LANCE_CONNECT_SECONDS}s",
    }
    if chosen.endpoint:
        found["aws_endpoint"] = chosen.endpoint
        found["allow_http"] = "true" if chosen.endpoint.startswith("http://") else "false"
    if chosen.anonymous:
        return found | {"aws_skip_signature": "true"}
    key, secret, token = chosen.key, chosen.secret, chosen.token
    if not (key and secret) and chosen.profile:
        key, secret, token = _profile_keys(chosen.profile)
    if key and secret:
        found |= {"aws_access_key_id": key, "aws_secret_access_key": secret}
        found |= {"aws_session_token": token} if token else {}
    return found


def _profile_keys(profile: str) -> tuple[str | None, str | None, str | None]:
    """Keys of a profile as they are now: botocore renews those that expire."""
    import botocore.exceptions

    try:
        found = _session(profile).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise ConfigError(f"AWS profile {profile!r}: {error}", hint="correct the profile, or AWS_PROFILE") from error
    frozen = found.get_frozen_credentials() if found is not None else None
    return (None, None, None) if frozen is None else (frozen.access_key, frozen.secret_key, frozen.token)


def _region(chosen: S3Options) -> str:
    """The region that is given, else the profile's; a server of one's own rarely knows regions."""
    if chosen.region or (chosen.endpoint and not chosen.profile):
        return chosen.region or DEFAULT_REGION
    import botocore.exceptions

    try:
        return str(_session(chosen.profile).get_config_variable("region") or DEFAULT_REGION)
    except botocore.exceptions.BotoCoreError as error:
        raise ConfigError(f"AWS profile {chosen.profile!r}: {error}", hint="correct the profile, or AWS_PROFILE") from error


@lru_cache(maxsize=4)
def _session(profile: str | None) -> Any:
    from chronicle.storage import s3session

    return s3session.session(profile)


def _head(answer: dict[str, Any]) -> Head:
    if missing := {"ContentLength", "LastModified"} - answer.keys():
        raise ConfigError(
            f"object store: an answer has no {' and no '.join(sorted(missing))}, so what answers is none",
            hint="check the endpoint with `chronicle doctor`",
        )
    return Head(
        size=int(answer["ContentLength"]),
        etag=str(answer.get("ETag", "")),
        version_id=str(answer.get("VersionId", "") or "").replace("null", ""),
        modified=_seconds(answer["LastModified"]),
        nonce=str(answer.get("Metadata", {}).get(NONCE, "")),
    )


def _seconds(moment: datetime) -> int:
    """Whole seconds since 1970: what listings and answers have in common."""
    return int(moment.astimezone(UTC).timestamp())
