"""All cases of a format once more: spread over lines, in containers with each other, and through a Storyline file."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from chronicle.formats import hub
from tests.conformance import test_atif_cases, test_openai_cases, test_storyline_cases
from tests.conformance.spine import Cases, Laws, origin_of
from tests.jsoncompare import same_json

FORMATS = {"atif": test_atif_cases.case, "openai_msg": test_openai_cases.case, "storyline": test_storyline_cases.case}
LONG = 100_000
"""Bytes from which a file is left out: once is enough for it."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]', re.DOTALL)


def spread(text: bytes, line: bytes) -> bytes:
    """The same JSON with white space at all places where it may be."""

    def around(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token in b",:":
            return b" " + token + line
        if token in b"[{":
            return token + line
        return line + token if token in b"]}" else token

    return _TOKEN.sub(around, text)


def whole_files(cases: Cases) -> Iterator[tuple[str, bytes]]:
    """The files of a format that hold one value, all of it readable."""
    for name, source in cases.files.items():
        if name.endswith(".json") and name not in cases.converted and len(source) < LONG and not _is_rejected(source):
            yield name, source


def _is_rejected(source: bytes) -> bool:
    """Whether the seeds say that it must be rejected: rows of it are in no table, so no export holds it."""
    return any(document.invalid for document in hub.cut(source).documents)


case = Cases()
for format, cases in FORMATS.items():
    files = dict(whole_files(cases))
    objects = [source for source in files.values() if source.startswith(b"{")]
    case.files |= {
        f"{format}-{name}": spread(source, b"\r\n\t" if at % 2 else b"\n ") for at, (name, source) in enumerate(files.items())
    }
    case.files[f"{format}.jsonl"] = b"\n".join(objects)
    case.files[f"{format}.json"] = b"[" + b" ,\n".join(objects) + b"]"
    case.files[f"{format}-one-after-the-other.json"] = b"".join(spread(source, b"\n ") for source in objects)


class TestLaws(Laws):
    """All files of all modules."""


@pytest.mark.parametrize("format", FORMATS)
def test_white_space_changes_nothing(lake, format):
    names = [name for name in case.files if name.startswith(f"{format}-") and not name.endswith("other.json")]
    for name in names:
        seen = lake.of(name)
        seen.check_laws()
        assert seen.quarantine == []
        assert {origin_of(run)["format"] for run in seen.runs} == {format}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("suffix", "container"), [(".jsonl", "jsonl"), (".json", "array"), ("-one-after-the-other.json", "concatenated")]
)
def test_documents_do_not_disturb_each_other(lake, format, suffix, container):
    seen = lake.of(format + suffix)
    seen.check_laws()
    assert seen.quarantine == []
    assert {origin_of(run)["container"] for run in seen.runs} == {container}


@pytest.mark.parametrize("format", FORMATS)
def test_through_a_storyline_file_and_back(format):
    for name, source in whole_files(FORMATS[format]):
        carried = hub.convert(format, "storyline", source)
        assert same_json(hub.convert("storyline", format, carried), source) is None, name


@pytest.mark.parametrize("format", FORMATS)
def test_every_case_can_be_written_in_every_format(format):
    for name, source in whole_files(FORMATS[format]):
        for target in FORMATS:
            made = hub.convert(format, target, source, residual="drop")
            assert hub.into_storyline(target, made), name
