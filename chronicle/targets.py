"""Where an export puts each source: `<to>/<last segment of the root or NAME>/<relative path>` (design 4.2 "Source key"). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from chronicle import identity
from chronicle.errors import IntegrityError
from chronicle.projection.sources import Receipt

_NAME_MAX = 255
"""Bytes of one name on the disks we know."""
_NAME_END = 32
"""Of a name that is too long: bytes at its end that stay, its suffix among them."""
_COMPRESSED = (".gz", ".zst")
_SUFFIXES = {"storyline": ".storyline.json", "agenticmd": ".md"}


def relative_targets(receipts: Iterable[Receipt], sizes: dict[str, int]) -> dict[str, str]:
    """Source key -> relative target path, all distinct. `sizes`: source id -> decompressed bytes.

    Two roots with one last segment get `~<8 hex>`, and so do two keys that would become one file.
    Raises IntegrityError for a key that would leave the target directory.
    """
    held = sorted(receipts, key=lambda r: r.source_key)
    folders = _folders({receipt.root for receipt in held})
    paths: dict[str, str] = {}
    for receipt in held:
        relative = receipt.source_key.removeprefix(receipt.root).removeprefix("/")
        is_packed = receipt.stat.size != sizes.get(receipt.source_id, receipt.stat.size)
        if is_packed and relative.endswith(_COMPRESSED):
            relative = relative.rpartition(".")[0]
        paths[receipt.source_key] = _checked(f"{folders[receipt.root]}/{relative}", receipt.source_key)
    return distinct(paths)


def distinct(paths: dict[str, str]) -> dict[str, str]:
    """Add `~<8 hex of the key>` to every path that another key has too, or that is a directory of another."""
    parents = {path[:at] for path in paths.values() for at in range(len(path)) if path[at] == "/"}
    seen: set[str] = set()
    chosen: dict[str, str] = {}
    for key, path in paths.items():
        if path in seen or path in parents:
            stem, dot, suffix = path.rpartition(".")
            mark = f"~{identity.fingerprint(key)[:8]}"
            path = f"{stem}{mark}{dot}{suffix}" if dot and "/" not in suffix else f"{path}{mark}"
        path = fitting(path, key)
        seen.add(path)
        chosen[key] = path
    return chosen


def fitting(path: str, key: str) -> str:
    """The path, its last name cut to what a disk takes: `~<8 hex of the key>` stands for what was left out."""
    folder, slash, name = path.rpartition("/")
    data = name.encode("utf-8", "surrogatepass")
    if len(data) <= _NAME_MAX:
        return path
    mark = f"~{identity.fingerprint(key)[:8]}"
    head = data[: _NAME_MAX - len(mark) - _NAME_END].decode("utf-8", "ignore")
    return f"{folder}{slash}{head}{mark}{data[-_NAME_END:].decode('utf-8', 'ignore')}"


def converted(path: str, format: str, container: str) -> str:
    """The name of a file that is converted to another format: the relative path stays, the suffix changes."""
    folder, _, name = path.rpartition("/")
    stem = name
    for suffix in (".storyline.json", ".actf.json", ".json", ".jsonl", ".ndjson", ".md"):
        if name.endswith(suffix) and name != suffix:
            stem = name.removesuffix(suffix)
            break
    return f"{folder}/{stem}{suffix_of(format, lines=output_container(format, container) == 'jsonl')}"


def suffix_of(format: str, *, lines: bool = False) -> str:
    """The suffix of a file of a format; `lines`: it holds JSON lines, where the format has such files."""
    return _SUFFIXES.get(format, ".jsonl" if lines else ".json")


def output_container(format: str, container: str) -> str:
    """The container of a source that is converted: its own, but lines where it was no one value, and an array for Storyline."""
    if format == "storyline":
        return "object" if container == "object" else "array"
    return "jsonl" if container == "concatenated" else container


def _folders(roots: set[str]) -> dict[str, str]:
    names = {root: root.rstrip("/:").rpartition("/")[2] or "root" for root in roots}
    counts: dict[str, int] = {}
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    return {root: name if counts[name] == 1 else f"{name}~{identity.fingerprint(root)[:8]}" for root, name in names.items()}


def _checked(path: str, key: str) -> str:
    if "\0" in path or any(segment in {"", ".", ".."} for segment in path.split("/")):
        raise IntegrityError(
            f"source key {key!r} would leave the export directory",
            hint="it was not written by an ingest of files; look at the facts with `chronicle replay`",
            source_key=key,
        )
    return path
