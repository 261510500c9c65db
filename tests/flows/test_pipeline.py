"""The flows under a real Prefect: the same results as the plain verbs, and states that say what happened."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chronicle.options import PipelineOptions
from chronicle.reports import PipelineReport
from chronicle.runlock import RunLock, take_run
from tests.command import chronicle
from tests.process import running

pytestmark = pytest.mark.xdist_group("prefect")


def options(lake: Path, exports: Path, **more: Any) -> PipelineOptions:
    return PipelineOptions(lake=str(lake), dataset="d", sources=(str(exports),), **more)


def finished(state: Any) -> PipelineReport:
    report = state.result()
    assert isinstance(report, PipelineReport)
    return report


def exact(lake: Path, to: Path) -> dict[str, bytes]:
    assert chronicle("export", "--exact", "--to", to, "--lake", lake, "--dataset", "d").code == 0
    return {path.relative_to(to).as_posix(): path.read_bytes() for path in sorted(to.rglob("*")) if path.is_file()}


def markdown(lake: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lake / "agenticmd/d").glob("*.md")}


def rows(lake: Path, table: str) -> list[bytes]:
    sql = f"SELECT * EXCLUDE ({'storage_ordinal' if table == 'runs' else 'document_id'}) FROM {table} ORDER BY ALL"
    done = chronicle("query", sql, "--lake", lake, "--dataset", "d", "--format", "jsonl")
    assert done.code == 0, done.err
    return done.lines


@pytest.fixture(scope="module")
def done(prefect_api: str, exports: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A lake that one run has filled, and the state in which the run ended."""
    from flows.pipeline import pipeline

    lake = tmp_path_factory.mktemp("run") / "lake"
    return lake, pipeline(options(lake, exports), return_state=True)


def test_run_equals_the_plain_verbs(done: tuple[Path, Any], exports: Path, tmp_path: Path) -> None:
    lake, state = done
    report = finished(state)
    assert state.name == "Quarantine"
    assert report.exit_code() == 65
    assert report.verify is not None
    assert report.verify.differences == []

    where = ("--lake", tmp_path / "plain", "--dataset", "d")
    plain = chronicle("ingest", exports, *where)
    assert plain.code == 65
    assert chronicle("rebuild", *where).code == 0
    assert chronicle("materialize", *where).code == 0
    assert report.ingest is not None
    for name in ("sources", "ingested", "empty", "quarantined_new", "documents", "events", "fact_version"):
        assert getattr(report.ingest, name) == plain.json[name]

    assert exact(lake, tmp_path / "a") == exact(tmp_path / "plain", tmp_path / "b")
    for table in ("runs", "steps", "tool_calls"):
        assert rows(lake, table) == rows(tmp_path / "plain", table)
    assert markdown(lake) == markdown(tmp_path / "plain") != {}


def test_second_run_finds_nothing_new(done: tuple[Path, Any], exports: Path) -> None:
    from flows.pipeline import pipeline

    lake, state = done
    first, second = finished(state), finished(pipeline(options(lake, exports), return_state=True))
    assert first.ingest is not None
    assert second.ingest is not None
    assert second.ingest.fact_version == first.ingest.fact_version
    assert (second.ingest.files_opened, second.ingest.events, second.ingest.ingested) == (0, 0, 0)
    assert second.rebuild is not None
    assert second.rebuild.mode == "fresh"
    stored = [json.loads(path.read_bytes()) for path in sorted((lake / "ops/d/reports").glob("*-run-*.json"))]
    assert {report["run_id"] for report in stored} == {first.run_id, second.run_id}
    assert all(0 < report["seconds"] == round(report["seconds"], 3) for report in stored)
    assert "10 new, 0 unchanged, 1 in quarantine; 15 Markdown files written; 0 differences; exit code 65" in state.message
    assert not (lake / "ops/d/run.json").exists()


def test_failed_derived_step_fails_its_subflow_only(prefect_api: str, exports: Path, tmp_path: Path) -> None:
    from flows.pipeline import pipeline

    lake = tmp_path / "lake"
    (lake / "storyline").mkdir(parents=True)
    (lake / "storyline/d").write_text("in the way of the tables")
    state = pipeline(options(lake, exports), return_state=True)
    report = finished(state)
    assert state.is_completed()
    assert state.name == "Incomplete"
    assert report.exit_code() == 70
    assert "rebuild" in report.failures
    assert "materialize" not in report.failures
    assert report.ingest is not None
    assert report.ingest.ingested > 0
    assert report.materialize is not None
    assert report.materialize.written > 0


def test_only_the_pipeline_has_a_heartbeat(monkeypatch: pytest.MonkeyPatch, exports: Path, tmp_path: Path) -> None:
    from prefect.settings import get_current_settings

    from flows import pipeline

    class Met(Exception):
        pass

    def step(given: PipelineOptions) -> None:
        raise Met(get_current_settings().flows.heartbeat_frequency)

    before = get_current_settings().flows.heartbeat_frequency
    monkeypatch.setattr(pipeline, "ingest", step)
    with pytest.raises(Met) as met:
        pipeline.carry_out(options(tmp_path / "lake", exports), PipelineReport(dataset="d", run_id="r", dry_run=False))
    assert met.value.args == (None,)
    assert get_current_settings().flows.heartbeat_frequency == before is not None


def test_run_that_meets_another_one_skips(prefect_api: str, exports: Path, tmp_path: Path) -> None:
    from flows.pipeline import pipeline

    asked = options(tmp_path / "lake", exports)
    lock = take_run(asked.paths, "the-other")
    assert isinstance(lock, RunLock)
    state = pipeline(asked, return_state=True)
    assert state.is_completed()
    assert finished(state).skipped == "run the-other is at work"
    assert finished(state).exit_code() == 0
    assert not Path(asked.paths.events).exists()
    lock.release()


def test_dry_run_changes_nothing(prefect_api: str, exports: Path, tmp_path: Path) -> None:
    from flows.pipeline import pipeline

    report = finished(pipeline(options(tmp_path / "lake", exports, dry_run=True), return_state=True))
    assert report.ingest is not None
    assert report.ingest.sources == 12
    assert not (tmp_path / "lake").exists()


@pytest.fixture
def process_environment(prefect_api: str) -> dict[str, str]:
    return {**os.environ, "PREFECT_API_URL": prefect_api}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flows.cli", *map(str, arguments)]


def test_command_prints_one_report_and_nothing_else(process_environment: dict[str, str], exports: Path, tmp_path: Path) -> None:
    where = ("--lake", tmp_path / "lake", "--dataset", "d")
    done = subprocess.run(command("run", exports, *where), env=process_environment, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.returncode == 65
    assert json.loads(done.stdout)["ingest"]["ingested"] == 10

    missing = subprocess.run(
        command("run", tmp_path / "nowhere", *where, "--json"), env=process_environment, capture_output=True, check=False
    )
    assert missing.returncode == 66
    assert json.loads(missing.stdout)["error"]["kind"] == "not-found"
    assert missing.stderr.startswith(b"error: ")
    assert missing.stderr.count(b"\n") == 1


@pytest.mark.parametrize("verb", ["run", "serve"])
def test_server_that_is_not_there_is_69(exports: Path, tmp_path: Path, verb: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'lake = "{tmp_path}/lake"\ndataset = "d"\nsources = ["{exports}"]\n[schedule]\ninterval = "1d"\n')
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/api"
    env = {**os.environ, "PREFECT_API_URL": url}
    done = subprocess.run(command(verb, "--config", config), env=env, capture_output=True, check=False, timeout=120)
    assert done.returncode == 69
    assert f"the Prefect server at {url} is not reachable" in done.stderr.decode()
    assert b"unset PREFECT_API_URL" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    "schedule", ['cron = "61 * * * *"', 'cron = ""', 'cron = "R * * * *"', 'cron = "0 2 * * *"\ntimezone = "Mars/Base"']
)
def test_schedule_that_is_none_is_78_before_a_server_starts(tmp_path: Path, schedule: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'lake = "{tmp_path}/lake"\ndataset = "d"\nsources = ["{tmp_path}"]\n[schedule]\n{schedule}\n')
    env = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"} | {"PREFECT_HOME": f"{tmp_path}/home"}
    done = subprocess.run(command("serve", "--config", config), env=env, capture_output=True, check=False, timeout=120)
    said = done.stderr.decode()
    assert done.returncode == 78
    assert str(config) in said
    assert repr(schedule.split('"')[1]) in said
    assert repr(schedule.split('"')[-2]) in said
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "home/server.log").exists()


def test_served_pipeline_runs_when_it_is_due(process_environment: dict[str, str], exports: Path, tmp_path: Path) -> None:
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound

    config = tmp_path / "c.toml"
    config.write_text(
        f'lake = "{tmp_path}/lake"\ndataset = "d"\nsources = ["{exports}"]\n[schedule]\nname = "often"\ninterval = "1d"\n'
    )
    env = {**process_environment, "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    with running(command("serve", "--config", config), env=env, cwd=tmp_path, stderr=subprocess.PIPE) as serving:
        assert serving.stderr is not None
        first = serving.stderr.readline().decode()
        assert "serving 'often'" in first
        run = None
        while run is None and serving.poll() is None:
            with contextlib.suppress(ObjectNotFound):  # it says that it serves just before it registers
                run = run_deployment(_deployment(first)[0], timeout=120, poll_interval=0.5)
        ended = serving.stderr.readline().decode()
        serving.send_signal(signal.SIGINT)
        rest = serving.stderr.read()
        assert serving.wait() == 130
    assert " Quarantine: 12 sources, 10 new, 0 unchanged, 1 in quarantine; 15 Markdown files written" in ended
    assert rest == b"interrupted: no run starts any more\n"
    assert run is not None
    assert run.state is not None
    assert run.state.name == "Quarantine"
    (report,) = (tmp_path / "lake/ops/d/reports").glob("*-run-*.json")
    assert json.loads(report.read_bytes())["ingest"]["ingested"] == 10


def _deployment(first: str) -> tuple[str, str]:
    """Name of the deployment, and URL of its server, in what `serve` says first."""
    found = re.search(r"deployment (\S+) at (\S+)", first)
    assert found is not None, first
    return found[1], found[2]


def test_what_an_earlier_serve_has_queued_does_not_run(exports: Path, tmp_path: Path) -> None:
    """It would run with the options of that time: here with sources that are none any more."""
    config = tmp_path / "c.toml"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= {"PREFECT_HOME": str(tmp_path / "home"), "PREFECT_RUNNER_POLL_FREQUENCY": "3600"}

    def configured(source: Path, interval: str) -> tuple[object, ...]:
        config.write_text(
            f'lake = "{tmp_path}/lake"\ndataset = "d"\nsources = ["{source}"]\n'
            f'[schedule]\nname = "often"\ninterval = "{interval}"\n'
        )
        return command("serve", "--config", config)

    with running(configured(exports, "2s"), env=env, cwd=tmp_path, stderr=subprocess.PIPE) as earlier:
        assert earlier.stderr is not None
        name, url = _deployment(earlier.stderr.readline().decode())
        while earlier.poll() is None and not _queued(name, url):
            pass
        earlier.send_signal(signal.SIGTERM)
        assert earlier.wait() == 0
    env["PREFECT_RUNNER_POLL_FREQUENCY"] = "1"
    with running(configured(tmp_path / "others", "1d"), env=env, cwd=tmp_path, stderr=subprocess.PIPE) as serving:
        assert serving.stderr is not None
        again, url = _deployment(serving.stderr.readline().decode())
        assert again == name
        left: list[float] = []
        while not (tmp_path / "lake").exists() and serving.poll() is None and (not left or min(left) < time.time()):
            left = _queued(name, url)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait() == 0
    assert not (tmp_path / "lake").exists()


def _queued(name: str, url: str) -> list[float]:
    """When the runs that a schedule has queued are due, in seconds since 1970."""
    script = (
        "import sys\n"
        "from prefect.client.orchestration import get_client\n"
        "from prefect.exceptions import ObjectNotFound\n"
        "with get_client(sync_client=True) as client:\n"
        "    try:\n"
        "        of = client.read_deployment_by_name(sys.argv[1]).id\n"
        "    except ObjectNotFound:\n"
        "        sys.exit()\n"
        "    for run in client.read_flow_runs():\n"
        "        if run.deployment_id == of and run.auto_scheduled and run.expected_start_time:\n"
        "            print(run.expected_start_time.timestamp())\n"
    )
    env = {**os.environ, "PREFECT_API_URL": url}
    done = subprocess.run([sys.executable, "-c", script, name], env=env, capture_output=True, check=True)
    return list(map(float, done.stdout.split()))


def test_interrupted_run_says_so_and_the_next_one_goes_on(
    process_environment: dict[str, str], exports: Path, tmp_path: Path
) -> None:
    from flows.pipeline import pipeline

    where = ("--lake", tmp_path / "lake", "--dataset", "d")
    lock = tmp_path / "lake/ops/d/run.json"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(command("run", "-", *where), env=process_environment, **pipes) as waiting:
        while not lock.exists() and waiting.poll() is None:
            time.sleep(0.01)
        waiting.send_signal(signal.SIGINT)
        _, words = waiting.communicate()
        assert waiting.returncode == 130
    assert b"Traceback" not in words
    assert b"run the same command again" in words
    again = finished(pipeline(options(tmp_path / "lake", exports), return_state=True))
    assert again.skipped == ""
    assert again.ingest is not None
    assert again.ingest.ingested == 10
