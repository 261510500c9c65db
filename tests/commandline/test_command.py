"""How a call ends: exit codes, one clear line, JSON where asked for, never a traceback."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from chronicle import errors, reports
from chronicle.commandline.command import Call, Verbs, verb
from chronicle.commandline.console import printable
from tests.command import Outcome, chronicle
from tests.laws.contents import atif

CODES = [
    (errors.InputError("bad", hint="mend it"), 65),
    (errors.UsageError("bad", hint="mend it"), 2),
    (errors.StaleFence("bad", hint="mend it"), 73),
    (errors.CommitStateUnknown("bad", hint="mend it"), 75),
    (errors.NotFoundError("bad", hint="mend it"), 66),
    (errors.IntegrityError("bad", hint="mend it"), 78),
    (errors.StorageError("bad", hint="mend it"), 69),
    (errors.ProjectionError("bad", hint="mend it"), 70),
    (errors.ConfigError("bad", hint="mend it"), 78),
]


def call_of(function: Any, *arguments: str, terminal: bool = False) -> Outcome:
    """Call an application of which `function` is the only verb."""
    app = Verbs("chronicle", help="For this test.")
    verb(app, "do", on=None, changes=True)(function)
    return chronicle(*arguments, app=app, terminal=terminal)


def raising(error: BaseException) -> Any:
    def do(call: Call) -> None:
        """Raise."""
        raise error

    return do


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
def test_errors_become_exit_codes_and_one_line(error: errors.ChronicleError, code: int) -> None:
    done = call_of(raising(error), "do")
    assert done.code == code
    assert done.err == "error: bad; mend it\n"
    assert done.out == b""
    asked = call_of(raising(error), "do", "--json")
    assert asked.json == {"error": {"kind": error.kind, "message": "bad", "hint": "mend it"}}
    assert asked.code == code


def test_full_disk_that_nobody_translated() -> None:
    done = call_of(raising(OSError(errno.ENOSPC, "No space left on device", "/lake")), "do")
    assert done.code == 69
    assert "full" in done.err


def test_a_bug_is_one_line_unless_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHRONICLE_DEBUG", raising=False)
    done = call_of(raising(RuntimeError("first\nsecond")), "do", "--json")
    assert done.code == 70
    assert done.err.count("\n") == 1
    assert "RuntimeError: first" in done.err
    assert "CHRONICLE_DEBUG" in done.err
    assert done.json["error"]["kind"] == "bug"
    monkeypatch.setenv("CHRONICLE_DEBUG", "1")
    assert "Traceback" in call_of(raising(RuntimeError("first")), "do").err


def test_interrupt_says_that_nothing_is_lost() -> None:
    done = call_of(raising(KeyboardInterrupt()), "do")
    assert done.code == 130
    assert "run the same command again" in done.err


def test_a_reader_that_has_gone_is_no_error() -> None:
    done = call_of(raising(BrokenPipeError(errno.EPIPE, "Broken pipe")), "do")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("arguments", [["do", "--nonsense"], ["other"], ["do", "more"], ["do", "--config"]])
def test_usage_errors_are_2_and_say_where_help_is(arguments: list[str]) -> None:
    done = call_of(raising(AssertionError("never called")), *arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "--help" in done.err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["nonsense"], "chronicle"),
        (["quarantine", "nonsense"], "chronicle quarantine"),
        (["quarantine", "show"], "chronicle quarantine show"),
        (["--json", "query", "--nonsense"], "chronicle query"),
    ],
)
def test_usage_errors_name_a_command_that_exists(arguments: list[str], command: str) -> None:
    done = chronicle(*arguments)
    assert done.code == 2
    assert f"see `{command} --help`" in done.err
    assert chronicle(*command.split()[1:], "--help").code == 0


def test_numbers_that_are_none() -> None:
    assert "'x' is not a whole number" in chronicle("query", "SELECT 1", "--limit", "x").err
    assert "'x' is not a number of seconds" in chronicle("query", "SELECT 1", "--timeout", "x").err
    assert "-1 is not in the range" in chronicle("query", "SELECT 1", "--limit", "-1").err


@pytest.mark.parametrize("group", [[], ["quarantine"], ["receipts"]])
def test_a_group_alone_prints_its_help(group: list[str]) -> None:
    alone = chronicle(*group)
    assert (alone.code, alone.err) == (0, "")
    assert alone.out == chronicle(*group, "--help").out
    assert len(alone.lines) > 5


def test_flags_of_all_verbs_stand_before_or_after_the_verb(tmp_path: Path) -> None:
    seen = []
    config = tmp_path / "c.toml"
    config.write_text('dataset = "from/file"')

    def do(call: Call) -> None:
        """Note."""
        seen.append((call.console.json, call.console.quiet, call.settings.dataset, call.dry_run))

    call_of(do, "--json", "--quiet", "--config", str(config), "do", "--dry-run")
    call_of(do, "do", "--json", "--quiet", "--config", str(config))
    call_of(do, "do")
    assert seen == [(True, True, "from/file", True), (True, True, "from/file", False), (False, False, None, False)]


def reporting(call: Call) -> reports.Report:
    """Report."""
    entry = reports.QuarantinedSource(
        id="1", source_key="file:///a\x1b[31m\u202eb", locator=None, kind="k", reason="r\n2", size=1
    )
    return reports.IngestReport(dataset="d", sources=3, quarantined_new=1, quarantine=[entry])


def test_reports_are_json_in_a_pipe_and_tables_on_a_terminal() -> None:
    piped = call_of(reporting, "do")
    assert piped.code == 65
    assert piped.json["sources"] == 3
    assert call_of(reporting, "do", "--json", terminal=True).json == piped.json | {"seconds": 0.0}
    drawn = call_of(reporting, "do", terminal=True).out.decode()
    assert "sources" in drawn
    assert "{" not in drawn
    assert call_of(reporting, "do", "--quiet", terminal=True).out == b""


def test_control_characters_of_data_do_not_reach_a_terminal() -> None:
    drawn = call_of(reporting, "do", terminal=True).out.decode()
    assert "\x1b[31m" not in drawn
    assert "\u202e" not in drawn
    assert json.loads(call_of(reporting, "do").out)["quarantine"][0]["source_key"] == "file:///a\x1b[31m\u202eb"
    done = call_of(raising(errors.NotFoundError("no \x1b]0;evil\x07 file")), "do")
    assert "\x1b" not in done.err
    assert r"\x1b]0;evil\x07" in done.err


def test_printable_keeps_text() -> None:
    text = "ä 日本 🙂 ♪ \\ tab"
    assert printable(text) == text
    assert printable("\t\r\n\x00\x7f\x9b\u2066\ud800") == r"\t\r\n\x00\x7f\x9b\u2066\ud800"
    assert printable("".join(map(chr, range(sys.maxunicode + 1)))).isprintable() is False  # spaces and the like stay


def test_an_interrupt_while_the_command_is_being_imported(tmp_path: Path) -> None:
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        module, _, function = tomllib.load(file)["project"]["scripts"]["chronicle"].partition(":")
    script = f"""
import subprocess
import sys
import tomllib

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "chronicle.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from {module} import {function}
{function}()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (130, "", 1)
    assert done.stderr.startswith("interrupted")


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_has_closed(tmp_path: Path, streams: str) -> None:
    """As some schedulers start a command; a file of the lake must not take the number of a stream."""
    (tmp_path / "a.json").write_bytes(atif("s", 2))
    words = f"{sys.executable} -m flows.start %s --lake lake --dataset d {streams}"
    for call in ("ingest a.json", "rebuild", "query 'SELECT * FROM steps'", "verify"):
        done = subprocess.run(words % call, shell=True, cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), call


@pytest.mark.parametrize("stdout", ["> /dev/full", "| true"])
def test_an_error_whose_json_nobody_can_take_keeps_its_exit_code(tmp_path: Path, stdout: str) -> None:
    words = f"{{ {sys.executable} -m flows.start list --lake gone --json; echo $? >&2; }} {stdout}"
    done = subprocess.run(words, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()
    assert (len(said), said[0][:6], said[-1]) == (2, "error:", "66")
