"""The house rules of design 10, checked on the source itself."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronicle import errors

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("chronicle", "flows", "tasks", "infra")
PURE = ("chronicle/formats/", "chronicle/events/record.py", "chronicle/events/manifest.py")
"""Values in, values out: they import nothing of IMPURE even inside a function, and nothing heavy at their top."""
IMPURE = {"os", "time", "random", "secrets", "socket", "pathlib", "tempfile", "subprocess", "uuid"}
HEAVY = {"pyarrow", "lance", "pandas", "duckdb", "numpy", "prefect", "botocore", "rich", "msgspec", "pydantic"}
BROAD_EXCEPTS = {"chronicle/commandline/command.py": 1}
"""The end of the command line; all others clean up and raise again."""
MAX_FUNCTION, MAX_FILE, MAX_PARAMETERS = 50, 450, 7

SOURCES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
FILES = sorted(SOURCES)


def imports(tree: ast.AST, *, top_only: bool = False) -> Iterator[str]:
    """Full names of the modules that a tree imports; TYPE_CHECKING blocks count as not imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif not (top_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, top_only=top_only)


def roots(tree: ast.AST, *, top_only: bool = False) -> set[str]:
    return {name.split(".")[0] for name in imports(tree, top_only=top_only)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a verb of the command line: its parameters are the flags of a contract."""
    return any("verb(" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.parametrize("file", FILES)
def test_layers_import_inwards_only(file: str) -> None:
    outer = {
        "chronicle": {"prefect", "flows", "tasks", "infra"},
        "tasks": {"flows", "infra"},
        "infra": {"flows", "tasks"},
        "flows": set(),
    }[file.split("/")[0]]
    assert not roots(SOURCES[file]) & outer


@pytest.mark.parametrize("file", FILES)
def test_only_the_storage_edge_knows_stores(file: str) -> None:
    used = roots(SOURCES[file])
    if not file.startswith("chronicle/storage/"):
        assert not used & {"fsspec", "s3fs", "botocore", "urllib3"}
    if file != "chronicle/storage/lanceio.py":
        assert "lance" not in used


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(PURE)])
def test_pure_modules_touch_no_clock_disk_or_chance(file: str) -> None:
    assert roots(SOURCES[file]) & IMPURE == set()
    assert roots(SOURCES[file], top_only=True) & {"pyarrow", "lance", "duckdb"} == set()


@pytest.mark.parametrize("file", FILES)
def test_sizes_stay_readable(file: str) -> None:
    assert len((ROOT / file).read_text().splitlines()) <= MAX_FILE
    for function in functions(SOURCES[file]):
        assert (function.end_lineno or 0) - function.lineno < MAX_FUNCTION, function.name
        arguments = function.args
        named = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs if a.arg not in {"self", "cls"}]
        assert len(named) <= MAX_PARAMETERS or is_command(function), function.name


@pytest.mark.parametrize("file", [file for file in FILES if not file.endswith("__init__.py")])
def test_public_names_say_what_they_are(file: str) -> None:
    tree = SOURCES[file]
    assert ast.get_docstring(tree), "module"
    public = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")]
    methods = [
        member
        for node in public
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_")
    ]
    assert [node.name for node in [*public, *methods] if not ast.get_docstring(node)] == []


def test_broad_excepts_stand_in_two_places() -> None:
    found: dict[str, int] = {}
    for file, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = (
                    {"bare"} if node.type is None else {ast.unparse(n) for n in ast.walk(node.type) if isinstance(n, ast.Name)}
                )
                reraises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
                reraises = reraises or "set_exception(" in ast.unparse(node)  # raised again in the thread that waits
                if caught & {"bare", "Exception", "BaseException"} and not reraises:
                    found[file] = found.get(file, 0) + 1
    assert {file: count for file, count in found.items() if count > BROAD_EXCEPTS.get(file, 0)} == {}


def test_tasks_are_one_line_over_the_library() -> None:
    bodies = [
        file for file, tree in SOURCES.items() if file.startswith("tasks/") and file != "tasks/lift.py" and list(functions(tree))
    ]
    assert bodies == []


def test_flows_keep_their_annotations_as_objects() -> None:
    found = [file for file in FILES if "@flow" in (ROOT / file).read_text() and "__future__" in roots(SOURCES[file])]
    assert found == [], "see flows/__init__.py"


def test_error_tree_and_exit_codes() -> None:
    tree = {
        name: (kind.__mro__[1].__name__, kind.kind, kind.exit_code)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ChronicleError)
    }
    assert tree == {
        "ChronicleError": ("Exception", "error", 70),
        "InputError": ("ChronicleError", "unreadable", 65),
        "UsageError": ("ChronicleError", "usage", 2),
        "ConflictError": ("ChronicleError", "conflict", 73),
        "StaleFence": ("ConflictError", "stale-fence", 73),
        "EpochAlreadyOwned": ("ConflictError", "epoch-already-owned", 73),
        "PublicationChanged": ("ConflictError", "publication-changed", 73),
        "CurrentConflict": ("ConflictError", "current-conflict", 73),
        "CommitStateUnknown": ("ChronicleError", "commit-state-unknown", 75),
        "NotFoundError": ("ChronicleError", "not-found", 66),
        "IntegrityError": ("ChronicleError", "integrity", 78),
        "StorageError": ("ChronicleError", "storage", 69),
        "ProjectionError": ("ChronicleError", "projection", 70),
        "ConfigError": ("ChronicleError", "config", 78),
    }
    builtin = {"InputError": ValueError, "UsageError": ValueError, "NotFoundError": LookupError, "StorageError": OSError}
    assert all(issubclass(getattr(errors, name), kind) for name, kind in builtin.items())


@pytest.mark.parametrize(
    "kind",
    [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.ChronicleError)],
    ids=lambda k: k.__name__,
)
def test_errors_survive_another_process(kind: type[errors.ChronicleError]) -> None:
    there = kind("what and where", hint="what next", kind="special", path="/a", transient=True)
    back = pickle.loads(pickle.dumps(there))
    assert type(back) is kind
    assert (back.message, back.hint, back.kind, back.context) == (there.message, there.hint, there.kind, there.context)
    assert str(back) == "what and where; what next"


def loaded_by(*arguments: str) -> set[str]:
    """Top-level modules that a process has loaded after one call of the command."""
    code = (
        "import sys; from flows.cli import app; from chronicle.commandline.command import main; "
        f"main(app, {list(arguments)!r}); sys.stderr.write(chr(10).join(m.split('.')[0] for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by("--help") & HEAVY == set()
    assert loaded_by("ingest", "--help") & HEAVY == set()


def test_plain_verbs_never_load_prefect(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "a"}, "steps": []}')
    where = ["--lake", str(tmp_path / "lake"), "--dataset", "d", "--json"]
    for verb in (["ingest", str(tmp_path / "one.json")], ["rebuild"], ["materialize"], ["verify"]):
        assert not loaded_by(*verb, *where) & {"prefect", "flows.pipeline", "tasks"}


def test_text_speaks_of_the_project_alone() -> None:
    """No path of a machine and no word of how the text came about."""
    forbidden = re.compile(r"/(?:(?:root|work)/|(?:home|tmp)/[a-z])", re.IGNORECASE)
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    texts = [
        name for name in tracked if name.endswith((".py", ".md", ".toml", ".ini", "Makefile", "run")) and (ROOT / name).exists()
    ]
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert [name for name in texts if name != here and forbidden.search((ROOT / name).read_text())] == []
