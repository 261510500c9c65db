"""`make demo`: the pipeline on sample exports, told step by step. Run it twice: the second time nothing is new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from chronicle.commandline.console import verified
from infra import samples

SAMPLES = Path("demo-samples")
LAKE = Path("demo-lake")
DATASET = "demo"
IN_QUARANTINE = 65
SQL = (
    "SELECT agent_id AS agent, count(DISTINCT document_id) AS runs, count(*) AS steps, "
    "sum((metrics->>'prompt_tokens')::INT) AS prompt_tokens "
    "FROM runs JOIN steps USING (document_id) GROUP BY ALL ORDER BY steps DESC"
)
FIRST_LINES = 28


def _say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _chronicle(*arguments: str, shown: bool = True) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user would; anything but success or a quarantine ends the demo."""
    if shown:
        _say("$ chronicle " + " ".join(f'"{word}"' if " " in word else word for word in arguments))
    command = [sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=False)
    if done.returncode not in (0, IN_QUARANTINE):
        sys.exit(done.returncode)
    return done


def _last_fact_version() -> int | None:
    """What the run before this one left, read from its report."""
    reports = sorted((LAKE / "ops" / DATASET / "reports").glob("*-run-*.json"))
    return json.loads(reports[-1].read_bytes())["ingest"]["fact_version"] if reports else None


def _tell(report: dict[str, Any], before: int | None) -> None:
    ingest, rebuild, markdown = report["ingest"], report["rebuild"], report["materialize"]
    _say(
        f"  {ingest['sources']} sources: {ingest['ingested']} new, {ingest['unchanged']} unchanged, {ingest['empty']} empty, "
        f"{ingest['quarantined_new'] + ingest['quarantined_still']} in quarantine"
    )
    _say(
        f"  {ingest['documents']} documents and {ingest['events']} events stored as facts, fact_version {ingest['fact_version']}"
    )
    _say(f"  tables: {rebuild['runs']} runs, {rebuild['steps']} steps, {rebuild['tool_calls']} tool calls ({rebuild['mode']})")
    _say(f"  markdown: {markdown['written']} files written, {markdown['unchanged']} unchanged, in {LAKE}/agenticmd/{DATASET}")
    if report["verify"]:
        _say(f"  verify: {verified(report['verify'], part=True)}")
    if before is not None and before == ingest["fact_version"]:
        _say(f"  Nothing was new: still fact_version {before}, no fact was written twice.")
    _say()


def _first_lines() -> None:
    path = LAKE / "agenticmd" / DATASET / "repair-101.md"
    _say(f"$ head -n {FIRST_LINES} {path}")
    _say("\n".join("  " + line for line in path.read_text().splitlines()[:FIRST_LINES]))
    _say()


def main() -> None:
    """Tell the story of one run, then what to try next."""
    where = ("--lake", str(LAKE), "--dataset", DATASET)
    written = samples.write(SAMPLES)
    count = len(samples.samples())
    _say(f"{count} exports of agent runs in {SAMPLES}/ ({len(written)} written now), one of them cut off on purpose.\n")
    before = _last_fact_version()
    _tell(json.loads(_chronicle("run", str(SAMPLES), *where).stdout), before)

    for entry in json.loads(_chronicle("quarantine", "list", *where).stdout)["entries"]:
        _say(f"  [{entry['kind']}] {entry['reason']}")
    _say()
    _say(_chronicle("query", SQL, *where, "--format", "table").stdout.decode())
    _first_lines()
    _say("Next: make demo again (nothing will be new), your own files, and the bytes that came in:")
    _say("  .venv/bin/chronicle run DIRECTORY --lake lake --dataset mine")
    _say(f"  .venv/bin/chronicle export --exact --to demo-out --lake {LAKE} --dataset {DATASET}")
    _say(f"{LAKE}/ and {SAMPLES}/ may be deleted at any time.")


if __name__ == "__main__":
    main()
