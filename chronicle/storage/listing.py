"""What a SOURCE of an ingest names: files with their source keys and stats (design 4.2 "Source key", 4.4).

A key is text: the canonical URI of the file, or `NAME/<relative path>` where the user names the root. This module lists local
disks, `s3listing` object stores.
"""

from __future__ import annotations

import errno
import os
import re
import stat as stat_mode
from glob import glob, has_magic

import msgspec

from chronicle.errors import NotFoundError, UsageError
from chronicle.layout import is_safe_segment
from chronicle.storage.files import from_oserror, translated
from chronicle.storage.uri import is_s3

TAKEN_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".md", ".sse", ".har"})
_COMPRESSED = frozenset({".gz", ".zst"})
_NAMED = re.compile(r"(?P<name>[^=/]+)=(?P<path>.+)\Z", re.DOTALL)
STDIN = "-"
HEAD_BYTES = 1 << 16
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""ELOOP: links that lead to each other."""


class SourceFile(msgspec.Struct, frozen=True):
    """One file that a SOURCE names. `size` in bytes, times in ns since 1970.

    An object has no ctime and no inode, but `etag` and `last_modified` (UTC, ISO 8601).
    """

    key: str
    root: str
    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    named: bool
    """Named by itself, not met in a walk."""
    etag: str = ""
    last_modified: str = ""

    def is_same_file(self, other: SourceFile) -> bool:
        """Whether both are one file, under whatever path."""
        return (self.inode, self.path if not self.inode else "") == (other.inode, other.path if not other.inode else "")


class Listing(msgspec.Struct):
    """All files of some SOURCEs, in order of their keys."""

    files: list[SourceFile] = []
    ignored: dict[str, int] = {}
    warnings: list[str] = []
    stdin: bool = False

    def ignore(self, name: str) -> None:
        """Count a file that is not taken, by its suffix."""
        suffix = os.path.splitext(name)[1]
        self.ignored[suffix] = self.ignored.get(suffix, 0) + 1


class Root(msgspec.Struct, frozen=True):
    """Where a SOURCE begins."""

    key: str
    """What keys of files below begin with."""
    path: str


def list_sources(sources: tuple[str, ...], lake: str) -> Listing:
    """Expand SOURCEs: files, directories, globs, their like in an object store (`s3://…`), `NAME=PATH`, `-`.

    Walks leave out the lake, hidden files and `*.lance`, and do not follow directory links.
    Raises NotFoundError for a path or glob that names nothing, UsageError for a NAME that is not allowed.
    """
    listing = Listing()
    for source in sources:
        if source == STDIN:
            listing.stdin = True
        else:
            _expand(source, lake, listing)
    unique: dict[str, SourceFile] = {}
    for file in listing.files:
        known = unique.setdefault(file.key, file)
        if not known.is_same_file(file):
            listing.warnings.append(f"{key_text(file.path)}: left out, {key_text(known.path)!r} has the one source key of both")
        elif file.named:
            unique[file.key] = file
    listing.files = [unique[key] for key in sorted(unique)]
    return listing


def file_at(key: str) -> SourceFile | None:
    """The file that a source key names as a canonical URI, if it is there; None for other keys."""
    if is_s3(key):
        from chronicle.storage import s3listing

        return s3listing.file_at(key)
    path = key.removeprefix("file://")
    if path == key:
        return None
    listing = Listing()
    try:
        _take(path, Root(key=f"file://{os.path.dirname(path)}".rstrip("/"), path=os.path.dirname(path)), listing, named=True)
    except NotFoundError:
        return None
    return listing.files[0] if listing.files else None


def key_text(path: str) -> str:
    """A path as text: bytes of a name that are not UTF-8 are kept as `\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _expand(source: str, lake: str, listing: Listing) -> None:
    name, path = _split_name(source)
    before = len(listing.files)
    if is_s3(path):
        from chronicle.storage import s3listing

        s3listing.expand(path, name, lake, listing)
    else:
        _expand_local(source, name, path, os.path.realpath(lake), listing)
    if len(listing.files) == before:
        listing.warnings.append(f"{source}: no file to ingest in it")


def _expand_local(source: str, name: str, path: str, lake: str, listing: Listing) -> None:
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    if os.path.lexists(path):
        matches = [path]
        root = path if os.path.isdir(path) else os.path.dirname(path) or "."
    elif has_magic(path):
        matches = sorted(glob(path, recursive=True))
        root = _fixed_directory(path)
    else:
        matches, root = [], path
    if not matches:
        raise no_such_source(source)
    resolved = os.path.realpath(root)
    base = Root(key=name or f"file://{key_text(resolved)}".rstrip("/"), path=resolved)
    for match in matches:
        absolute = os.path.join(resolved, os.path.relpath(match, root)) if match != root else resolved
        if os.path.isdir(absolute):
            _walk(absolute, base, lake, listing)
        else:
            _take(absolute, base, listing, named=True)


def no_such_source(source: str) -> NotFoundError:
    """What to raise for a SOURCE that names nothing."""
    return NotFoundError(f"source {source!r} does not exist", hint="check the path, or the glob", source=source)


def _split_name(source: str) -> tuple[str, str]:
    match = _NAMED.match(source)
    if match is None or os.path.lexists(source):
        return "", source
    name = match["name"]
    if not is_safe_segment(name):
        raise UsageError(f"source name {name!r} is not allowed", hint="use letters, digits, '.', '_' and '-' in NAME=PATH")
    return name, match["path"]


def _fixed_directory(pattern: str) -> str:
    """The longest directory before the first wildcard."""
    fixed: list[str] = []
    for piece in pattern.split(os.sep)[:-1]:
        if has_magic(piece):
            break
        fixed.append(piece)
    return os.sep.join(fixed) or (os.sep if pattern.startswith(os.sep) else ".")


def _walk(top: str, root: Root, lake: str, listing: Listing) -> None:
    pending = [top]
    while pending:
        directory = pending.pop()
        if os.path.realpath(directory) == lake:
            continue
        with translated(directory), os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda e: e.name)
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith(".lance"):
                    pending.append(entry.path)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                listing.warnings.append(f"{key_text(entry.path)}: link to a directory, not followed")
            elif is_taken(entry.name):
                _take(entry.path, root, listing, named=False)
            else:
                listing.ignore(entry.name)


def is_taken(name: str) -> bool:
    """Whether a walk takes files of this name."""
    stem, suffix = os.path.splitext(name)
    if suffix in _COMPRESSED:
        suffix = os.path.splitext(stem)[1]
    return not suffix or suffix in TAKEN_SUFFIXES


def _take(path: str, root: Root, listing: Listing, *, named: bool) -> None:
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno not in _NOTHING_THERE:
            raise from_oserror(error, path) from error
        if named:
            raise NotFoundError(f"source {key_text(path)!r} does not exist", hint="check the path") from None
        listing.warnings.append(f"{key_text(path)}: gone, or a link that leads nowhere")
        return
    if not stat_mode.S_ISREG(found.st_mode):
        listing.warnings.append(f"{key_text(path)}: not a regular file, left out")
        return
    if not named and path.endswith(".md") and not _looks_like_agenticmd(path):
        listing.ignore(path)
        return
    relative = key_text(os.path.relpath(path, root.path))
    listing.files.append(
        SourceFile(
            key=f"{root.key}/{relative}",
            root=root.key,
            path=path,
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
            ctime_ns=found.st_ctime_ns,
            inode=found.st_ino,
            named=named,
        )
    )


def _looks_like_agenticmd(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return True  # let the reader say what is wrong with it
    return is_agenticmd(head)


def is_agenticmd(head: bytes) -> bool:
    """Whether a Markdown file that begins so is one of ours or the peer's: its HEAD_BYTES tell."""
    return b"<!-- persisting:block" in head or re.search(rb"^format:\s*persisting\s*$", head, re.MULTILINE) is not None
