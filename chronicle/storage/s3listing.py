"""What a SOURCE in an object store names: one object, all below a prefix, or what a glob matches (design 4.2 "Source key").

Keys are text: `[`, `+`, `%`, `#` and the like stand for themselves wherever such an object or prefix exists. A listing is
always the store's of this moment.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from glob import has_magic

import msgspec

from chronicle.errors import UsageError
from chronicle.storage import s3
from chronicle.storage.listing import HEAD_BYTES, Listing, Root, SourceFile, is_agenticmd, is_taken, no_such_source
from chronicle.storage.s3client import Client, Head, Listed
from chronicle.storage.s3errors import S3Error

_LAST = "\U0010ffff"
_HEADS_AT_ONCE = 16
_UNSAFE = frozenset({"", ".", ".."})


def expand(path: str, name: str, lake: str, listing: Listing) -> None:
    """Add the objects that `path` names, under keys that begin with its root, or with `name` where that is given.

    Raises NotFoundError where it names nothing, UsageError for an object that cannot be written back under its name.
    """
    with s3.at(path) as (store, bucket, key):
        whole = _Expansion(store, bucket, name, lake, listing)
        found = store.head(bucket, key) if key and not key.endswith("/") else None
        if found is not None:
            whole.take_named(key, found)
        elif not whole.walk(key.rstrip("/")) and not (has_magic(key) and whole.match(key)):
            raise no_such_source(path)


def file_at(key: str) -> SourceFile | None:
    """The object that a source key names, if it is there."""
    with s3.at(key) as (store, bucket, name):
        found = store.head(bucket, name) if name else None
        if found is None:
            return None
        root = key.rpartition("/")[0]
        return _file(Root(root, root), key, Listed(name, found.size, found.etag, found.modified), named=True)


def stat_text(modified: int) -> str:
    """Seconds since 1970 as `last_modified` says them."""
    return datetime.fromtimestamp(modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Expansion(msgspec.Struct):
    """One SOURCE on its way into a listing."""

    store: Client
    bucket: str
    name: str
    lake: str
    listing: Listing

    def take_named(self, key: str, found: Head) -> None:
        """The SOURCE is this object."""
        if _UNSAFE & set(key.split("/")):
            raise UsageError(f"{self._path(key)} has an empty, '.' or '..' segment", hint="copy it to another key")
        self._add(self._root(key.rpartition("/")[0]), Listed(key, found.size, found.etag, found.modified), named=True)

    def walk(self, folder: str) -> bool:
        """All objects below a prefix; whether there are any at all."""
        root, any_at_all = self._root(folder), False
        markdown: list[Listed] = []
        for one in self._objects(folder):
            any_at_all = True
            if self._is_walked(one, one.key[len(folder) :].lstrip("/") if folder else one.key):
                self._take(root, one, markdown)
        self._take_markdown(root, markdown)
        return any_at_all

    def match(self, pattern: str) -> bool:
        """The objects that a glob matches, and those below the prefixes that it matches; whether there are any."""
        fixed = _fixed_folder(pattern)
        root, any_at_all = self._root(fixed), False
        segments = [re.compile(fnmatch.translate(segment)) if segment != "**" else None for segment in pattern.split("/")]
        hidden = [segment.startswith(".") for segment in pattern.split("/")]
        markdown: list[Listed] = []
        for one in self._objects(fixed, pattern[: _magic_at(pattern)]):
            names = one.key.split("/")
            if _matches(segments, hidden, names):
                if self._is_safe(one):
                    any_at_all = True
                    self._add(root, one, named=True)
                continue
            below = next((at for at in range(1, len(names)) if _matches(segments, hidden, names[:at])), 0)
            if below:
                any_at_all = True
                if self._is_walked(one, "/".join(names[below:])):
                    self._take(root, one, markdown)
        self._take_markdown(root, markdown)
        return any_at_all

    def _objects(self, folder: str, prefix: str = "") -> Iterator[Listed]:
        """Objects below a folder, without those of the lake where that lies in it, and without markers of folders."""
        prefix = prefix or (f"{folder}/" if folder else "")
        inside = f"{self._path(folder)}/"
        lake = f"{self.lake}/"[len(self._path("")) :] if f"{self.lake}/".startswith(inside) else ""
        start_after = ""
        while True:
            for one in self.store.objects(self.bucket, prefix, start_after=start_after):
                if lake and one.key.startswith(lake):
                    start_after = lake + _LAST
                    break
                if not one.key.endswith("/"):
                    yield one
            else:
                return

    def _is_walked(self, one: Listed, relative: str) -> bool:
        """Whether a walk meets an object at all: not what is hidden, and nothing in a Lance dataset."""
        *folders, name = relative.split("/")
        if any(folder.startswith(".") or folder.endswith(".lance") for folder in folders if folder) or name.startswith("."):
            return False
        return self._is_safe(one)

    def _is_safe(self, one: Listed) -> bool:
        if _UNSAFE & set(one.key.split("/")):
            self.listing.warnings.append(f"{self._path(one.key)}: left out, its key has an empty, '.' or '..' segment")
            return False
        return True

    def _take(self, root: Root, one: Listed, markdown: list[Listed]) -> None:
        if one.key.endswith(".md"):
            markdown.append(one)
        elif is_taken(one.key.rpartition("/")[2]):
            self._add(root, one, named=False)
        else:
            self.listing.ignore(one.key.rpartition("/")[2])

    def _take_markdown(self, root: Root, found: Iterable[Listed]) -> None:
        """Of Markdown files a walk takes those that begin like AgenticMD."""
        found = list(found)
        if not found:
            return
        with ThreadPoolExecutor(_HEADS_AT_ONCE, thread_name_prefix="chronicle-head") as readers:
            for one, taken in zip(found, readers.map(self._is_agenticmd, found), strict=True):
                if taken:
                    self._add(root, one, named=False)
                else:
                    self.listing.ignore(one.key)

    def _is_agenticmd(self, one: Listed) -> bool:
        try:
            return one.size > 0 and is_agenticmd(self.store.get(self.bucket, one.key, first_bytes=HEAD_BYTES)[0])
        except S3Error as error:
            if error.transient:
                raise
            return True  # let the reader say what is wrong with it

    def _add(self, root: Root, one: Listed, *, named: bool) -> None:
        relative = self._path(one.key)[len(root.path) + 1 :]
        self.listing.files.append(_file(root, f"{root.key}/{relative}", one, named=named, path=self._path(one.key)))

    def _root(self, folder: str) -> Root:
        path = self._path(folder).rstrip("/")
        return Root(key=self.name or path, path=path)

    def _path(self, key: str) -> str:
        return s3.uri(self.bucket, key)


def _file(root: Root, key: str, one: Listed, *, named: bool, path: str = "") -> SourceFile:
    return SourceFile(
        key=key,
        root=root.key,
        path=path or key,
        size=one.size,
        mtime_ns=one.modified * 1_000_000_000,
        ctime_ns=0,
        inode=0,
        named=named,
        etag=one.etag.strip('"'),
        last_modified=stat_text(one.modified),
    )


def _magic_at(pattern: str) -> int:
    return min(pattern.index(each) for each in "*?[" if each in pattern)


def _fixed_folder(pattern: str) -> str:
    """The longest prefix before the first wildcard that ends at a slash."""
    return pattern[: _magic_at(pattern)].rpartition("/")[0]


def _matches(pattern: list[re.Pattern[str] | None], hidden: list[bool], names: list[str]) -> bool:
    """Whether the segments of a glob match those of a key; `None` stands for `**`. Wildcards do not match a leading dot."""
    if not pattern:
        return not names
    first, rest, rest_hidden = pattern[0], pattern[1:], hidden[1:]
    if first is None:
        return _matches(rest, rest_hidden, names) or (
            bool(names) and not names[0].startswith(".") and _matches(pattern, hidden, names[1:])
        )
    if not names or (names[0].startswith(".") and not hidden[0]):
        return False
    return first.match(names[0]) is not None and _matches(rest, rest_hidden, names[1:])
