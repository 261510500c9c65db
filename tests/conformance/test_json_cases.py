"""Cases 62 to 82: spellings of JSON, containers, encodings and files (design 4.2)."""

from __future__ import annotations

import gzip
import json
import os
import time
from typing import Any

import pytest
import zstandard

from chronicle.export import export
from chronicle.ingest import ingest
from chronicle.intake import reading
from chronicle.layout import DatasetPaths
from chronicle.options import ExportOptions, IngestOptions
from chronicle.quarantine import Quarantine
from tests.conformance.spine import Cases, Laws, columns, lints_of, origin_of, residual_of
from tests.conformance.texts import arr, atif, obj, one_call, one_step, root, step

case = Cases()


class TestLaws(Laws):
    """All files of this module."""

    def test_the_exit_code_speaks_of_what_could_not_be_read(self, lake):
        report = lake.reports[1]
        kinds = [kind for found in lake.entries.values() for _, kind in found]
        assert report.empty == kinds.count("empty") == 4
        assert report.quarantined_new + report.quarantined_still == len(kinds) - 4
        assert report.exit_code() == 65
        assert lake.reports[2].exit_code() == 65


# --- numbers ------------------------------------------------------------------------------------------------

NUMBERS = {
    "62-integer": "1",
    "62-float": "1.0",
    "63-exponents": "[1e2,1E+2,1.10,-0,-0.0,-1E-7]",
    "64-beyond-doubles": f"[{2**53 + 1},{2**63},{2**64},{-(2**63) - 1},{'1234567890' * 3}]",
    "64-5000-digits": "7" * 5000,
    "65-beyond-range": "[1e400,-1e400,1e-400]",
}


@case(None, {f"{name}-in-extra": (root(extra=f'{{"n":{text}}}'), text) for name, text in NUMBERS.items()})
def test_numbers_of_the_root_keep_their_spelling(seen, expected):
    assert seen.run["extra"] == f'{{"n":{expected}}}'
    assert expected.encode() in seen.as_format("atif")
    assert seen.lints == {}


@case(None, {f"{name}-in-arguments": (one_call(arguments=f'{{"n":{text}}}'), text) for name, text in NUMBERS.items()})
def test_numbers_of_a_call_keep_their_spelling(seen, expected):
    assert seen.call["arguments"] == f'{{"n":{expected}}}'
    assert expected.encode() in seen.as_format("atif")


@case(None, {f"{name}-unknown": (one_step(odd=text), text) for name, text in NUMBERS.items()})
def test_numbers_of_unknown_members_keep_their_spelling(seen, expected):
    assert residual_of(seen.step) == {"/odd": expected}
    assert expected.encode() in seen.as_format("atif")


@case(
    66,
    {
        "in-metrics": (
            one_step(metrics='{"logprobs":[NaN,Infinity,-Infinity]}'),
            ("metrics", '{"logprobs":[NaN,Infinity,-Infinity]}', 3),
        ),
        "in-extra": (one_step(extra='{"loss":NaN}'), ("extra", '{"loss":NaN}', 1)),
        "as-text": (one_step(message='"loss is NaN, not -Infinity"'), ("message_value", '"loss is NaN, not -Infinity"', 0)),
        "after-a-quote": (one_step(message=r'"say \"NaN\" twice"', extra='{"x":NaN}'), ("extra", '{"x":NaN}', 1)),
    },
)
def test_numbers_that_are_none(seen, expected):
    column, text, count = expected
    assert seen.step[column] == text
    assert seen.lints == ({"not-a-number": count} if count else {})


@case(66, {"in-root": root(extra='{"loss":NaN}'), "in-unknown": root(odd="[Infinity]")})
def test_numbers_that_are_none_in_the_root(seen, expected):
    assert seen.lints["not-a-number"] == 1
    assert seen.step["message_value"] == '"turn the bolt"'


# --- strings ------------------------------------------------------------------------------------------------

SURROGATES = {
    "lone-high": (r'"cut \ud83d"', "cut \ufffd", 1),
    "lone-low": (r'"\ude00 cut"', "\ufffd cut", 1),
    "reversed": (r'"\ude00\ud83d"', "\ufffd\ufffd", 2),
    "upper-case": (r'"\uD83D!"', "\ufffd!", 1),
    "high-then-letter-escape": (r'"\ud83d\u0041"', "\ufffdA", 1),
    "valid-pair": (r'"\ud83d\ude00"', "\U0001f600", 0),
    "literal": ('"\U0001f600"', "\U0001f600", 0),
    "escaped-backslash": (r'"\\ud83d"', r"\ud83d", 0),
}


@case(
    67,
    {name: (one_step(message=text, reasoning_content=text), (text, plain, n)) for name, (text, plain, n) in SURROGATES.items()},
)
def test_surrogates(seen, expected):
    """JSON columns keep the escape, text columns show U+FFFD for it, the residual holds what was there."""
    text, plain, unpaired = expected
    assert columns(seen.step, ("message_value", "reasoning_content")) == (text, plain)
    rest = {at: json.loads(found) for at, found in residual_of(seen.step).items()}
    assert rest == ({"/reasoning_content": json.loads(text)} if unpaired else {})
    assert seen.lints == ({"unpaired-surrogate": 2 * unpaired} if unpaired else {})


@case(
    67,
    {
        "in-session": (root(session_id=r'"s\ud83d"'), ("session_id", "s\ufffd")),
        "in-agent": (root(agent=r'{"name":"a\udc00","version":"1"}'), ("agent_id", "a\ufffd")),
        "in-notes": (root(notes=r'"n\udfff"'), ("notes", "n\ufffd")),
        "in-trajectory-id": (root(trajectory_id=r'"t\ud800"'), ("run_id", "t\ufffd")),
    },
)
def test_surrogates_in_the_root(seen, expected):
    column, plain = expected
    assert seen.run[column] == plain
    assert seen.lints == {"unpaired-surrogate": 1}


@case(
    67,
    {
        "in-key": (one_step(**{r"k\ud83d": "1"}), {"unknown-key": 1, "unpaired-surrogate": 1}),
        "in-call-id": (one_call(tool_call_id=r'"c\ud83d"'), {"unpaired-surrogate": 1}),
        "in-source": (one_step(source=r'"\udc00"'), {"unknown-source": 1, "unpaired-surrogate": 1}),
        "in-time": (one_step(timestamp=r'"2026\ud83d"'), {"wrong-type": 1, "unpaired-surrogate": 1}),
    },
)
def test_surrogates_elsewhere(seen, expected):
    assert seen.lints == expected


CONTROLS = {
    "nul": (r'"a\u0000b"', "a\0b"),
    "escaped-controls": (r'"\u0001\u001b[31m"', "\x01\x1b[31m"),
    "literal-controls": ('"a\x01\tb\nc"', "a\x01\tb\nc"),
    "literal-nul": ('"a\x00b"', "a\0b"),
    "line-separators": ('"a\u2028b\u2029c\ufeff"', "a\u2028b\u2029c\ufeff"),
    "escaped-slash": (r'"a\/b"', "a/b"),
    "delete": ('"\x7f\x85"', "\x7f\x85"),
}


@case(68, {name: (one_step(message=text, reasoning_content=text), (text, plain)) for name, (text, plain) in CONTROLS.items()})
def test_control_characters(seen, expected):
    text, plain = expected
    assert columns(seen.step, ("message_value", "reasoning_content")) == (text, plain)
    assert json.loads(seen.as_format("atif"), strict=False)["steps"][0]["message"] == plain


# --- repeated keys ------------------------------------------------------------------------------------------


def twice(text: str, extra: str) -> bytes:
    """An object text with more members at its end."""
    return f"{text[:-1]},{extra}}}".encode()


REPEATED = {"repeated-key": 1}


@case(
    69,
    {
        "root-unequal": (twice(atif(step(), notes='"a"'), '"notes":"b"'), ("b", REPEATED)),
        "root-equal": (twice(atif(step(), notes='"a"'), '"notes":"a"'), ("a", REPEATED)),
        "root-escaped": (twice(atif(step(), notes='"a"'), r'"\u006eotes":"b"'), ("b", REPEATED)),
        "extra": (root(notes='"a"', extra='{"k":1,"k":2}'), ("a", {})),
    },
)
def test_repeated_keys_of_the_root(seen, expected):
    """The last one counts, as for every JSON reader; none of them is lost."""
    notes, lints = expected
    assert seen.run["notes"] == notes
    assert seen.run["extra"] in (None, '{"k":1,"k":2}')
    assert seen.lints == lints
    assert len(seen.steps) == 1


def with_step(text: bytes) -> bytes:
    return atif(text.decode()).encode()


@case(
    69,
    {
        "step-unequal": (with_step(twice(step(), '"message":"b"')), ('"b"', REPEATED)),
        "step-equal": (with_step(twice(step(), '"message":"turn the bolt"')), ('"turn the bolt"', REPEATED)),
        "step-escaped": (with_step(twice(step(), r'"mess\u0061ge":"c"')), ('"c"', REPEATED)),
        "step-unknown": (with_step(twice(step(), '"odd":1,"odd":2')), ('"turn the bolt"', {"repeated-key": 1, "unknown-key": 1})),
    },
)
def test_repeated_keys_of_a_step(seen, expected):
    message, lints = expected
    assert seen.step["message_value"] == message
    assert seen.lints == lints


@case(
    69,
    {
        "arguments-unequal": (one_call(arguments='{"a":1,"a":2}'), '{"a":1,"a":2}'),
        "arguments-equal": (one_call(arguments='{"a":1,"a":1}'), '{"a":1,"a":1}'),
        "arguments-escaped": (one_call(arguments=r'{"a":1,"\u0061":2}'), r'{"a":1,"\u0061":2}'),
    },
)
def test_repeated_keys_of_arguments(seen, expected):
    assert columns(seen.call, ("arguments", "residual")) == (expected, None)
    assert seen.lints == {}


# --- bytes --------------------------------------------------------------------------------------------------

BOM = b"\xef\xbb\xbf"


@case(70, {"object": BOM + root(notes='"b"'), "array": BOM + f" [{atif(step())}]".encode()})
def test_byte_order_mark(seen, expected):
    assert seen.lints == {"byte-order-mark": 1}
    assert seen.step["message_value"] == '"turn the bolt"'
    assert not seen.as_format("atif").startswith(BOM)


@case(70, {"lines": BOM + f"{atif(step())}\n{atif(step(), notes=chr(34) * 2)}\n".encode()}, suffix=".jsonl")
def test_byte_order_mark_of_lines(seen, expected):
    assert [lints_of(run) for run in seen.runs] == [{"byte-order-mark": 1}, {}]


ROUND = atif(step(message='"caf\u00e9"'))


@case(
    71,
    {
        "latin-1": ROUND.encode("latin-1"),
        "cut-in-a-character": ROUND.encode()[:-4] + b"\xc3",
        "cesu-8": one_step(message='"X"').replace(b"X", b"\xed\xa0\xbd\xed\xb8\x80"),
        "overlong": one_step(message='"X"').replace(b"X", b"\xc0\xaf"),
        "utf-16": ROUND.encode("utf-16"),
        "utf-16-be": ROUND.encode("utf-16-be"),
        "utf-32": ROUND.encode("utf-32"),
    },
)
def test_text_that_is_not_utf8_is_set_aside(seen, expected):
    assert seen.quarantine == [(None, "encoding")]


BAD_LINE = b'{"messages":[{"role":"user","content":"caf\xe9"}]}'
GOOD_LINES = [json.dumps({"messages": [{"role": "user", "content": text}]}).encode() for text in ("a", "b", "c")]


def partial(name: str, source: bytes, kept: list[bytes]) -> dict[str, bytes]:
    """A JSONL case of which only some lines can be projected."""
    case.converted[name] = b"".join(line + b"\n" for line in kept)
    return {name.partition("-")[2].removesuffix(".jsonl"): source}


@case(
    71, partial("71-bad-line.jsonl", b"\n".join([GOOD_LINES[0], BAD_LINE, GOOD_LINES[1], b""]), GOOD_LINES[:2]), suffix=".jsonl"
)
def test_a_line_that_is_not_utf8_is_a_member_for_itself(seen, expected):
    assert seen.quarantine == [(1, "member:encoding")]
    assert [origin_of(run)["locator"] for run in seen.runs] == [0, 2]


PRETTY = json.dumps(json.loads(atif(step())), indent=2)


@case(
    72,
    {
        "crlf": PRETTY.replace("\n", "\r\n").encode(),
        "spaces": f"  \t\n{PRETTY}   \n\n ".encode(),
        "no-newline": PRETTY.encode(),
        "tabs": json.dumps(json.loads(atif(step(), notes='"t"')), indent="\t").encode(),
    },
)
def test_white_space_around_and_within(seen, expected):
    assert residual_of(seen.run) == {}
    assert columns(seen.step, ("step_id", "message_value", "residual")) == (1, '"turn the bolt"', None)
    assert seen.lints == {}


@case(
    72,
    {
        "crlf-lines": b"\r\n".join([GOOD_LINES[0], GOOD_LINES[1], b""]),
        "blank-lines": b"\n\n".join([b"", GOOD_LINES[0], b"  \t", GOOD_LINES[1], b"\n"]),
        "no-newline-lines": GOOD_LINES[0] + b"\n" + GOOD_LINES[1],
        "spaces-lines": b"  " + GOOD_LINES[0] + b"  \n " + GOOD_LINES[1] + b" ",
    },
    suffix=".jsonl",
)
def test_lines_are_counted_without_blank_ones(seen, expected):
    assert [origin_of(run)["locator"] for run in seen.runs] == [0, 1]
    assert [seen.steps_of(run)[0]["message_value"] for run in seen.runs] == ['"a"', '"b"']


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@case(73, {"200": (one_step(extra=nested(195)), 195), "900": (one_step(extra=nested(900)), 900)})
def test_deep_nesting_is_projected(seen, expected):
    assert seen.step["extra"] == nested(expected)
    assert seen.quarantine == []


@case(73, {"3000": one_step(extra=nested(3000)), "100000": one_step(extra=nested(100_000)), "deep-root": root(odd=nested(3000))})
def test_nesting_beyond_reason_is_kept_and_not_projected(seen, expected):
    assert seen.quarantine == []
    assert seen.runs == []
    assert seen.lake.rebuilds[3].lints["too-deep"] == 3
    assert seen.target not in seen.lake.formatted["atif"]


@case(
    74,
    {
        "empty": (b"", "empty"),
        "white-space": (b" \r\n\t\n", "empty"),
        "empty-array": (b" [ ] ", "empty"),
        "only-a-mark": (BOM, "empty"),
        "null": (b"null", "unsupported:json-scalar"),
        "number": (b"42", "unsupported:json-scalar"),
        "string": (b'"x"', "unsupported:json-scalar"),
        "empty-object": (b"{}", "unsupported:json-object"),
        "array-of-numbers": (b"[1,2]", "unsupported:json-array"),
    },
)
def test_files_that_hold_no_trajectory(seen, expected):
    assert seen.quarantine == [(None, expected)]


@case(
    75,
    {
        "truncated": (root()[:-9], "truncated"),
        "truncated-in-string": (root(notes='"abc"')[:-3], "truncated"),
        "trailing-comma": (atif(step())[:-1].encode() + b",}", "unreadable"),
        "comment": (b"// made by hand\n" + root(), "unreadable"),
        "inner-comment": (root(notes='/* none */ "a"'), "unreadable"),
        "single-quotes": (b"{'schema_version': 'ATIF-v1.7', 'steps': []}", "unreadable"),
        "no-quotes": (b'{schema_version: "ATIF-v1.7", steps: []}', "unreadable"),
        "python": (b'{"schema_version": "ATIF-v1.7", "notes": None, "steps": []}', "unreadable"),
    },
)
def test_text_that_is_not_json_is_set_aside(seen, expected):
    """With its bytes, and the place of the fault for who has to repair it."""
    assert seen.quarantine == [(None, expected)]
    found = Quarantine(seen.lake.paths)
    entry = next(entry for entry in found.entries.values() if entry.source_key.endswith(f"/{seen.name}"))
    assert found.data(entry) == seen.source
    assert "byte" in entry.reason
    assert entry.size == len(seen.source)


# --- containers ---------------------------------------------------------------------------------------------


@case(
    76,
    partial("76-bad-middle.jsonl", b"\n".join([GOOD_LINES[0], b'{"messages":[', GOOD_LINES[1], b""]), GOOD_LINES[:2])
    | partial("76-bad-word.jsonl", b"\n".join([GOOD_LINES[0], b"oops", GOOD_LINES[2], b""]), [GOOD_LINES[0], GOOD_LINES[2]]),
    suffix=".jsonl",
)
def test_one_bad_line_does_not_cost_its_neighbours(seen, expected):
    (entry,) = seen.quarantine
    assert entry in [(1, "member:truncated"), (1, "member:unreadable")]
    assert [origin_of(run)["locator"] for run in seen.runs] == [0, 2]


@case(
    76,
    partial("76-cut-off.jsonl", b"\n".join([GOOD_LINES[0], GOOD_LINES[1], GOOD_LINES[2][:-9]]), GOOD_LINES[:2])
    | partial("76-scalar.jsonl", b"\n".join([GOOD_LINES[1], GOOD_LINES[0], b"42"]), [GOOD_LINES[1], GOOD_LINES[0]])
    | partial("76-unknown.jsonl", b"\n".join([GOOD_LINES[2], GOOD_LINES[0], b'{"a":1}']), [GOOD_LINES[2], GOOD_LINES[0]]),
    suffix=".jsonl",
)
def test_a_bad_last_line(seen, expected):
    kinds = {"cut-off": "truncated", "scalar": "unsupported:json-scalar", "unknown": "unsupported:json-object"}
    assert seen.quarantine == [(2, f"member:{kinds[seen.name[3:-6]]}")]
    assert len(seen.runs) == 2


ONE, TWO = atif(step(message='"1"')), atif(step(message='"2"'))
case.converted |= dict.fromkeys(
    ("76-array-scalar.json", "76-array-unknown.json", "76-array-cut-off.json", "76-array-empty-member.json"),
    arr(ONE, TWO).encode(),
)


@case(
    76,
    {
        "array-scalar": (arr(ONE, "42", TWO).encode(), ((1, "member:unsupported:json-scalar"), [0, 2])),
        "array-unknown": (arr(ONE, TWO, '{"a":1}').encode(), ((2, "member:unsupported:json-object"), [0, 1])),
        "array-cut-off": (arr(ONE, TWO, atif(step()))[:-20].encode(), ((2, "member:truncated"), [0, 1])),
        "array-empty-member": (arr("[]", ONE, TWO).encode(), ((0, "member:empty"), [1, 2])),
    },
)
def test_one_bad_element_of_an_array_does_not_cost_its_neighbours(seen, expected):
    entry, locators = expected
    assert seen.quarantine == [entry]
    assert [origin_of(run)["locator"] for run in seen.runs] == locators


@case(
    77,
    {
        "pretty": (PRETTY + "\n" + PRETTY.replace("s-1", "s-2") + "\n").encode(),
        "no-space": (PRETTY + PRETTY.replace("s-1", "s-3")).encode(),
    },
)
def test_one_pretty_object_after_the_other(seen, expected):
    assert [origin_of(run)["container"] for run in seen.runs] == ["concatenated"] * 2
    assert [origin_of(run)["locator"] for run in seen.runs] == [0, 1]


@case(78, {"lines": (b"\n".join(GOOD_LINES), ("jsonl", 3))})
def test_lines_in_a_json_file(seen, expected):
    container, count = expected
    assert [origin_of(run)["container"] for run in seen.runs] == [container] * count


@case(
    78,
    {
        "array": arr(atif(step()), atif(step(message='"b"'))).encode(),
        "pretty-array": json.dumps([json.loads(atif(step())), json.loads(atif(step()))], indent=1).encode(),
    },
    suffix=".jsonl",
)
def test_an_array_in_a_jsonl_file(seen, expected):
    assert [origin_of(run)["container"] for run in seen.runs] == ["array"] * 2


case(79, {"gzip": gzip.compress(root(notes='"g"'), mtime=0)}, suffix=".json.gz")
case(79, {"zstd": zstandard.compress(root(notes='"z"'))}, suffix=".json.zst")
case(79, {"gzip-in-disguise": gzip.compress(root(notes='"d"'), mtime=0)})
case(79, {"two-members": b"".join(gzip.compress(half, mtime=0) for half in (root(notes='"m"')[:40], root(notes='"m"')[40:]))})


@pytest.mark.parametrize("name", ["79-gzip.json.gz", "79-zstd.json.zst", "79-gzip-in-disguise.json", "79-two-members.json"])
def test_case79_compression_is_found_by_its_first_bytes(lake, name):
    """Exact export gives the decompressed bytes, without the suffix of the compression."""
    seen = lake.of(name)
    assert seen.data is not seen.source
    assert lake.exact[name.removesuffix(".gz").removesuffix(".zst")] == seen.data
    assert seen.step["message_value"] == '"turn the bolt"'
    seen.check_laws()


@case(
    79,
    {
        "cut": (gzip.compress(root(), mtime=0)[:-12], "truncated"),
        "broken": (gzip.compress(root(), mtime=0)[:20] + b"\xff" * 40, "unreadable"),
    },
    suffix=".json.gz",
)
def test_a_damaged_archive_is_set_aside_as_it_lay(seen, expected):
    assert seen.quarantine == [(None, expected)]
    found = Quarantine(seen.lake.paths)
    entry = next(entry for entry in found.entries.values() if entry.source_key.endswith(f"/{seen.name}"))
    assert found.data(entry) == seen.source


@case(80, {"long-step": one_step(message=json.dumps("0123456789abcdef" * (1 << 16)))})
def test_a_long_step(seen, expected):
    assert seen.step["message_value"].encode() in seen.source
    assert len(seen.step["message_value"]) == (1 << 20) + 2


@case(80, {"many-steps": atif(*(step(step_id=str(n)) for n in range(1, 3001))).encode()})
def test_many_steps(seen, expected):
    assert [row["step_id"] for row in seen.steps] == list(range(1, 3001))
    assert seen.lints == {}


STORY = obj(spec='"storyline/v1"', session='"s-9"', agent='{"id":"wrench"}', turns='[{"id":1,"src":"user","msg":"hi"}]')


case(81, {"mixed": "\n".join([atif(step()), GOOD_LINES[0].decode(), STORY, ""]).encode()}, suffix=".jsonl")


def test_case81_each_line_is_read_by_its_own_format(lake):
    seen = lake.of("81-mixed.jsonl")
    assert seen.exported == seen.source
    assert [origin_of(run)["format"] for run in seen.runs] == ["atif", "openai_msg", "storyline"]
    assert [seen.steps_of(run)[0]["message_value"] for run in seen.runs] == ['"turn the bolt"', '"a"', '"hi"']
    assert seen.quarantine == []
    for line, format in enumerate(("atif", "openai_msg", "storyline")):
        values = _values(seen.as_format(format))
        assert len(values) == 3
        assert values[line] == json.loads(seen.source.splitlines()[line])


def _values(data: bytes) -> list[Any]:
    """Values of an export: of JSON lines, or of an array."""
    return json.loads(data) if data.startswith(b"[") else [json.loads(line) for line in data.splitlines()]


# --- files --------------------------------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path) -> DatasetPaths:
    (tmp_path / "in").mkdir()
    (tmp_path / "lake").mkdir()
    return DatasetPaths(str(tmp_path / "lake"), "files")


def take(paths: DatasetPaths, tmp_path, **options):
    return ingest(IngestOptions(paths=paths, sources=(str(tmp_path / "in"),), **options))


def test_case80_a_source_over_the_limit_is_known_and_not_kept(paths, tmp_path):
    (tmp_path / "in/large.json").write_bytes(root(notes=json.dumps("x" * 5000)))
    (tmp_path / "in/small.json").write_bytes(root())
    report = take(paths, tmp_path, max_source_bytes=4000)
    assert (report.ingested, report.quarantined_new, report.exit_code()) == (1, 1, 65)
    (entry,) = Quarantine(paths).entries.values()
    assert (entry.kind, entry.stored) == ("too-large", False)
    assert entry.size == (tmp_path / "in/large.json").stat().st_size
    assert take(paths, tmp_path, max_source_bytes=1 << 20, format="atif").ingested >= 1


def test_case80_an_archive_that_unpacks_to_too_much_is_set_aside(paths, tmp_path):
    bomb = gzip.compress(b'{"x":"' + b"0" * (4 << 20) + b'"}')
    (tmp_path / "in/bomb.json.gz").write_bytes(bomb)
    report = take(paths, tmp_path, max_ratio=20)
    (entry,) = Quarantine(paths).entries.values()
    assert (report.ingested, entry.kind, entry.stored, entry.size) == (0, "too-large", True, len(bomb))


def test_case80_small_batches_split_no_document(paths, tmp_path):
    for n in range(6):
        (tmp_path / f"in/{n}.json").write_bytes(atif(*(step(step_id=str(i)) for i in range(1, 40)), notes=str(n)).encode())
    report = take(paths, tmp_path, batch_bytes=2000)
    assert (report.ingested, report.segments) == (6, 6)
    export(ExportOptions(paths=paths, to=str(tmp_path / "out"), exact=True))
    for n in range(6):
        assert (tmp_path / f"out/in/{n}.json").read_bytes() == (tmp_path / f"in/{n}.json").read_bytes()


def test_case82_directory_links_are_not_followed(paths, tmp_path):
    (tmp_path / "in/deep").mkdir()
    (tmp_path / "in/deep/a.json").write_bytes(root())
    (tmp_path / "in/deep/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/self").symlink_to(tmp_path / "in/self")
    (tmp_path / "in/gone.json").symlink_to(tmp_path / "nowhere.json")
    report = take(paths, tmp_path)
    assert (report.ingested, report.documents) == (1, 1)
    assert report.sources == 1


def test_case82_pipes_and_sockets_are_not_read(paths, tmp_path):
    (tmp_path / "in/a.json").write_bytes(root())
    os.mkfifo(tmp_path / "in/pipe.json")
    report = take(paths, tmp_path)
    assert (report.ingested, report.quarantined_new) == (1, 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
def test_case82_a_file_that_may_not_be_read_does_not_stop_its_neighbours(paths, tmp_path):
    (tmp_path / "in/a.json").write_bytes(root())
    (tmp_path / "in/secret.json").write_bytes(root(notes='"s"'))
    (tmp_path / "in/secret.json").chmod(0)
    report = take(paths, tmp_path)
    assert (report.ingested, report.quarantined_new, report.exit_code()) == (1, 1, 65)
    (entry,) = Quarantine(paths).entries.values()
    assert (entry.kind, entry.stored) == ("unreadable", False)
    (tmp_path / "in/secret.json").chmod(0o600)
    assert take(paths, tmp_path).ingested == 1


def test_case82_a_file_that_changes_while_it_is_read_is_taken_next_time(paths, tmp_path, monkeypatch):
    target = tmp_path / "in/live.json"
    target.write_bytes(root())
    (tmp_path / "in/still.json").write_bytes(root(notes='"still"'))
    read = reading._read_all

    def read_and_be_overtaken(handle: int, size: int) -> bytes:
        data = read(handle, size)
        if os.path.samestat(os.fstat(handle), target.stat()):
            target.write_bytes(root(notes='"grown while it was read"'))
        return data

    monkeypatch.setattr(reading, "_read_all", read_and_be_overtaken)
    report = take(paths, tmp_path)
    assert (report.ingested, report.changed_while_read, report.exit_code()) == (1, [f"file://{target}"], 0)
    monkeypatch.undo()
    time.sleep(0.03)
    assert take(paths, tmp_path).ingested == 1
    export(ExportOptions(paths=paths, to=str(tmp_path / "out"), exact=True))
    assert (tmp_path / "out/in/live.json").read_bytes() == target.read_bytes()


def test_case82_a_file_of_the_same_second_is_looked_at_again(paths, tmp_path):
    """A file younger than the clock's grain may change without its stat: digested again, it is stored once."""
    (tmp_path / "in/a.json").write_bytes(root())
    assert take(paths, tmp_path).ingested == 1
    again = take(paths, tmp_path)
    assert (again.unchanged, again.ingested, again.events) == (1, 0, 0)
