"""Every command of the README is executed, and what it is said to print is what it prints."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronicle.settings import Limits, Schedule, Settings
from infra import samples
from tests.command import chronicle
from tests.process import running

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
ELIDED = "…"

pytestmark = pytest.mark.xdist_group("prefect")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of the ```console blocks, with the lines that are shown below it."""
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


def pattern(shown: list[str]) -> re.Pattern[str]:
    """The shown lines as a pattern: `…` alone on a line is any number of lines, inside a line any text."""
    lines = ["(?:.*\n)*?" if line == ELIDED else ".*".join(map(re.escape, line.split(ELIDED))) + "\n" for line in shown]
    return re.compile("".join(lines))


@pytest.fixture
def shell(prefect_api: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PREFECT_API_URL": prefect_api}


def serve(command: str, cwd: Path, env: dict[str, str]) -> str:
    """What a command that serves until interrupted says first."""
    with running(command.split(), cwd=cwd, env=env, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        first = process.stderr.readline().decode()
        process.send_signal(signal.SIGINT)
        process.wait()
    return first


def test_console_blocks(shell: dict[str, str], tmp_path: Path) -> None:
    given: dict[str, str] = {}
    for command, shown in commands():
        if command.startswith("export "):
            given |= dict(word.split("=", 1) for word in command.split()[1:])
            continue
        env = {**shell, **given}
        if command.startswith("chronicle serve"):
            assert pattern(shown).fullmatch(serve(command, tmp_path, env)), command
            continue
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        stands_in_quarantine = "chronicle ingest" in command or "chronicle quarantine retry" in command
        assert done.returncode == (65 if stands_in_quarantine else 0), f"{command}\n{done.stderr}"
        assert pattern(shown).fullmatch(done.stdout), f"{command}\n{done.stdout}"


def test_python_block(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    prepare = (
        "from tests.command import chronicle; from infra.samples import write; from pathlib import Path\n"
        "write(Path('exports')); where = ('--lake', 'lake', '--dataset', 'mine')\n"
        "chronicle('ingest', 'exports', *where); chronicle('rebuild', *where)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", prepare + block], cwd=tmp_path, env=env, check=True)


def test_demo_twice_tells_what_the_readme_shows(shell: dict[str, str], tmp_path: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    command = [sys.executable, "-m", "infra.demo"]
    first, second = (subprocess.check_output(command, cwd=tmp_path, env=shell, text=True) for _ in range(2))
    assert shown in first
    assert "truncated" in first
    assert "Nothing was new: still fact_version 1" in second
    assert "verify: nothing new, nothing to check" in second


def test_erasing_as_the_operators_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/operators.md").read_text()
    (tmp_path / "without.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    samples.write(tmp_path / "exports")
    key = (tmp_path / "exports/eval/batch.json").as_uri()
    old, new = (("--lake", tmp_path / "lake", "--dataset", name) for name in ("mine", "mine-2"))
    assert chronicle("ingest", tmp_path / "exports", *old).code == 65
    facts = chronicle("replay", *old).out
    kept = subprocess.check_output([sys.executable, tmp_path / "without.py", key], input=facts)
    wrong = [sys.executable, tmp_path / "without.py", f"{key}x"]
    failed = subprocess.run(wrong, input=facts, capture_output=True, check=False)
    assert failed.returncode == 1
    assert b"no fact has the source key" in failed.stderr
    assert chronicle("ingest", "-", *new, stdin=kept).code == 0
    assert chronicle("export", "--exact", "--to", tmp_path / "out", *new).code == 0
    stored = {path.name for path in (tmp_path / "out").rglob("*.json*")}
    expected = {Path(name).name for name, data in samples.samples().items() if data and "cut-off" not in name}
    assert stored == expected - {"batch.json"}


def test_every_setting_is_on_the_operators_page() -> None:
    page = (ROOT / "docs/operators.md").read_text()
    for settings in (Settings, Limits, Schedule):
        assert all(name in page for name in settings.__struct_fields__)


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "docs/operators.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), target


def test_what_the_commands_leave_is_ignored_and_can_be_removed() -> None:
    ignored = (ROOT / ".gitignore").read_text().split()
    (removed,) = re.findall(r"^clean-readme:.*\n\trm -rf (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in ("exports", "lake", "out", "stories", "tables", "training.jsonl", "report.html", "survey.json"):
        assert re.search(rf"\b{re.escape(name)}\b", README)
        assert f"/{name}" in ignored
        assert name in removed.split()


def test_every_command_of_the_readme_can_be_found() -> None:
    """The environment is activated before the first bare `chronicle`, and make has made it."""
    words = [command.split()[0] for command, _ in commands()]
    assert words.index(".") < words.index("chronicle")
    assert ". .venv/bin/activate" in README
    assert "venv .venv" in (ROOT / "Makefile").read_text()


def test_the_two_commands_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
