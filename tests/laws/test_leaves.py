"""One changed leaf of a source changes the Storyline or the residual: no field is silently ignored (design 11)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from chronicle.errors import InputError
from chronicle.formats import hub
from chronicle.formats.cut import cut
from chronicle.formats.document import CutSource
from chronicle.layout import TABLES
from chronicle.projection.tables import TableBuilder
from chronicle.projection.tables import stories as table_stories
from infra import samples
from tests.jsoncompare import same_json

SOURCE_ID = "0" * 32
"""The same for all, so that ids do not tell them apart."""
Path = tuple[str | int, ...]


def leaves(value: object, path: Path = ()) -> Iterator[Path]:
    """Paths of all values that hold no others."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not value or not isinstance(value, dict | list):
        yield path
    for key, each in inside:
        yield from leaves(each, (*path, key))


def changed(value: Any, path: Path) -> Any:
    """A copy with another value at a path."""
    if not path:
        return _other(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:])
    return copy


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if value == value else 0
    return f"{value}~" if isinstance(value, str) else 1 if value is None else [987]


def stories(data: bytes, format: str) -> bytes:
    """Everything that the hub knows of a file. Raises InputError where it takes none of it."""
    found = cut(data, format=format)
    made = []
    for document in found.documents:
        if document.fault or document.invalid:
            raise InputError(document.reason or document.invalid or "")
        made += hub.into(hub.document_of(data, found, document, SOURCE_ID))
    return msgspec.msgpack.encode(made)


def chosen(data: bytes, found: CutSource, dice: random.Random, most: int) -> Iterator[tuple[int, Any, list[Path]]]:
    """(locator, value, places of leaves, at most so many) of each document that a strict reader takes."""
    for document in found.documents:
        try:
            value = json.loads(data[document.start : document.end])
        except ValueError:
            continue
        paths = list(leaves(value))
        yield document.locator, value, paths if len(paths) <= most else dice.sample(paths, most)


def ignored(data: bytes, dice: random.Random, most: int) -> tuple[int, list[str]]:
    """(leaves that were changed, those of them that made no difference) of a file, at most so many of each document."""
    found = cut(data)
    tried, silent = 0, []
    for locator, value, paths in chosen(data, found, dice, most):
        try:
            before = stories(json.dumps(value).encode(), found.format or "")
        except InputError:
            continue
        for path in paths:
            tried += 1
            try:
                after = stories(json.dumps(changed(value, path)).encode(), found.format or "")
            except InputError:  # it is missed, then
                continue
            if after == before:
                silent.append(f"document {locator}: {'/'.join(map(str, path))}")
    return tried, silent


def through_tables(data: bytes, format: str) -> bytes:
    """A file of one document as rows of the three tables give it back. Raises InputError where the hub takes none of it."""
    found = cut(data, format=format)
    builder = TableBuilder()
    for document in found.documents:
        if document.fault or document.invalid:
            raise InputError(document.reason or document.invalid or "")
        builder.add(hub.into(hub.document_of(data, found, document, SOURCE_ID)), document.locator)
    made = builder.batches()
    return hub.from_storyline(format, list(table_stories(*([made[name]] for name in TABLES))))


def lost(data: bytes, dice: random.Random, most: int) -> tuple[int, list[str]]:
    """(leaves that were changed, those that did not come out of the tables as they were changed), at most so many a document."""
    found = cut(data)
    tried, missing = 0, []
    for locator, value, paths in chosen(data, found, dice, most):
        for path in paths:
            text = json.dumps(changed(value, path)).encode()
            try:
                out = through_tables(text, found.format or "")
            except InputError:
                continue
            tried += 1
            if same_json(text, out) is not None or same_json(json.dumps(value).encode(), out) is None:
                missing.append(f"document {locator}: {'/'.join(map(str, path))}")
    return tried, missing


@pytest.mark.parametrize("name", ["eval/survey-7.json", "eval/batch.json", "eval/leaf-3.json", "rollouts/rollout-12.json"])
def test_a_changed_leaf_of_a_sample_comes_out_of_the_tables(name: str) -> None:
    tried, missing = lost(samples.samples()[name], random.Random(5), 30)
    assert tried > 3
    assert missing == []


@pytest.mark.parametrize("name", [name for name, data in samples.samples().items() if data and "cut-off" not in name])
def test_no_leaf_of_a_sample_is_ignored(name: str) -> None:
    tried, silent = ignored(samples.samples()[name], random.Random(3), 200)
    assert tried > 3
    assert silent == []
