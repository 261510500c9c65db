"""Lance: light import, dense encoding without a trace in the schema, errors in our words."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from chronicle.errors import ConfigError, ConflictError, IntegrityError, NotFoundError, StorageError
from chronicle.storage import files, lanceio

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string(), nullable=False)])


def batch(texts, first=0):
    return pa.record_batch([pa.array(range(first, first + len(texts)), pa.int64()), pa.array(texts, pa.string())], schema=SCHEMA)


def records(count):
    """Texts as facts are: much the same around something of their own."""
    rng = random.Random(7)
    lexicon = [rng.randbytes(rng.randrange(2, 5)).hex() for _ in range(3000)]
    head = '{"event_id":"%032x","kind":"document.part","payload":{"degraded":true,"value":{"message":"%s","source":"agent"}}}'
    return [head % (rng.getrandbits(128), " ".join(rng.choices(lexicon, k=30))) for _ in range(count)]


def data_bytes(uri):
    return files.tree_bytes(os.path.join(uri, "data"))


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout


def test_dense_columns_are_smaller_also_on_append(tmp_path):
    texts = records(4000)
    plain, dense = str(tmp_path / "plain.lance"), str(tmp_path / "dense.lance")
    for uri, encode in ((plain, ()), (dense, ("text",))):
        assert lanceio.create(uri, SCHEMA, [batch(texts)], encode) == 1
    created = data_bytes(dense)
    assert created < 0.8 * data_bytes(plain)
    assert lanceio.append(dense, 1, SCHEMA, [batch(texts, 4000)], ("text",)) == 2
    assert data_bytes(dense) - created < 1.02 * created
    assert lanceio.open_version(dense, 2).to_table()["text"].to_pylist() == texts * 2


def test_no_version_carries_field_metadata(tmp_path):
    uri = str(tmp_path / "x.lance")
    version = lanceio.create(uri, SCHEMA, [batch(["a"])], ("text",))
    for first in (1, 2, 3):
        version = lanceio.append(uri, version, SCHEMA, [batch(["b"], first)], ("text",))
    for at in range(1, version + 1):
        dataset = lanceio.open_version(uri, at)
        assert dataset.schema.equals(SCHEMA, check_metadata=True)
        assert "lance-encoding" not in str(dataset.lance_schema)
        assert dataset.data_storage_version == "2.2"
        assert dataset.count_rows() == at


def test_long_and_odd_values_read_back(tmp_path):
    rng = random.Random(3)
    around_a_chunk = [rng.randbytes(131_072 + more).hex()[: 262_144 + more] for more in (-1, 0, 1)]
    many = [rng.randbytes(30_000).hex() for _ in range(20)]
    texts = ["", "x" * 5_000_000, "é" * 40_000, *many, rng.randbytes(2_500_000).hex(), *around_a_chunk, "a", ""]
    uri = str(tmp_path / "x.lance")
    lanceio.create(uri, SCHEMA, [batch(texts)], ("text",))
    assert lanceio.append(uri, 1, SCHEMA, [batch(texts[::-1], len(texts))], ("text",)) == 2
    dataset = lanceio.open_version(uri, 2)
    assert dataset.to_table()["text"].to_pylist() == texts + texts[::-1]
    assert dataset.take([27, 1, 24], columns=["text"])["text"].to_pylist() == [texts[27], texts[1], texts[24]]


def test_an_empty_dataset(tmp_path):
    uri = str(tmp_path / "x.lance")
    assert lanceio.create(uri, SCHEMA, [], ("text",)) == 1
    assert lanceio.open_version(uri, 1).count_rows() == 0
    assert lanceio.append(uri, 1, SCHEMA, [batch(["a"])], ("text",)) == 2
    assert lanceio.open_latest(uri).version == 2


def test_many_rows_become_several_files(tmp_path):
    uri = str(tmp_path / "x.lance")
    lanceio.create(uri, SCHEMA, (batch(["v"] * 35_000, at) for at in range(0, 70_000, 35_000)))
    dataset = lanceio.open_version(uri, 1)
    assert [f.count_rows() for f in dataset.get_fragments()] == [32_768, 32_768, 70_000 - 65_536]


def test_nothing_is_overwritten(tmp_path):
    uri = str(tmp_path / "x.lance")
    lanceio.create(uri, SCHEMA, [batch(["a"])])
    with pytest.raises(ConflictError):
        lanceio.create(uri, SCHEMA, [batch(["b"])])
    assert lanceio.open_latest(uri).to_table()["text"].to_pylist() == ["a"]


def test_a_strangers_commit_in_between_is_noticed(tmp_path):
    uri = str(tmp_path / "x.lance")
    lanceio.create(uri, SCHEMA, [batch(["a"])])
    lanceio.append(uri, 1, SCHEMA, [batch(["stranger"])])
    with pytest.raises(ConflictError, match="was not the last one"):
        lanceio.append(uri, 1, SCHEMA, [batch(["mine"])])


def test_a_failing_source_of_batches_keeps_its_error(tmp_path):
    def batches():
        yield batch(["a"])
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        lanceio.create(str(tmp_path / "x.lance"), SCHEMA, batches())


def test_batches_are_never_cast(tmp_path):
    wrong = pa.record_batch({"n": ["1"], "text": ["a"]})
    with pytest.raises(TypeError):
        lanceio.create(str(tmp_path / "x.lance"), SCHEMA, [wrong])


def test_names_with_odd_characters(tmp_path):
    for name in ("a b#c", "a%20b", "a?b", "ü", "a:b"):
        uri = str(tmp_path / name / "x.lance")
        lanceio.create(uri, SCHEMA, [batch([name])])
        assert os.path.isdir(uri)
        assert lanceio.open_version(uri, 1).to_table()["text"].to_pylist() == [name]


def test_what_is_not_there(tmp_path):
    uri = str(tmp_path / "x.lance")
    with pytest.raises(NotFoundError):
        lanceio.open_version(uri, 1)
    lanceio.create(uri, SCHEMA, [batch(["a"])])
    with pytest.raises(NotFoundError, match="version 9"):
        lanceio.open_version(uri, 9)
    with pytest.raises(NotFoundError):
        lanceio.open_latest(str(tmp_path / "y.lance"))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 4096])
def test_a_damaged_manifest_is_an_integrity_error(tmp_path, damage):
    uri = str(tmp_path / "x.lance")
    lanceio.create(uri, SCHEMA, [batch(["a"])])
    next(Path(uri, "_versions").glob("*.manifest")).write_bytes(damage)
    with pytest.raises(IntegrityError):
        lanceio.open_version(uri, 1)


def test_a_file_in_the_way_is_for_the_operator(tmp_path):
    (tmp_path / "lake").write_bytes(b"")
    with pytest.raises(ConfigError):
        lanceio.create(str(tmp_path / "lake" / "x.lance"), SCHEMA, [batch(["a"])])


def test_a_full_disk_is_a_storage_error(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here: " + mounted.stderr.decode(errors="replace").strip())
    try:
        random_texts = [random.Random(n).randbytes(2000).hex() for n in range(2000)]
        with pytest.raises(StorageError, match="No space left") as caught:
            lanceio.create(str(disk / "x.lance"), SCHEMA, [batch(random_texts)], ("text",))
        assert caught.value.exit_code == 69
        assert not caught.value.transient
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_lance_is_imported_without_pandas_which_still_works_later():
    code = """
import sys
from chronicle.storage import lanceio
import pyarrow as pa
assert "lance" not in sys.modules
assert pa.array(["a"]).take(pa.array([0])).to_pylist() == ["a"]
assert "pandas" not in sys.modules, "an array imported pandas"
lanceio.lance()
assert "pandas" not in sys.modules, "lance imported pandas"
assert pa.table({"a": [1]}).to_pandas()["a"].sum() == 1
assert pa.Table.from_pandas(sys.modules["pandas"].DataFrame({"b": [2]})).num_rows == 1
assert lanceio.lance() is sys.modules["lance"]
print("good")
"""
    assert run(code) == "good\n"


def test_lance_comes_from_one_module_alone():
    root = Path(__file__).resolve().parents[2] / "chronicle"
    importers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().split()[:2] in (["import", "lance"], ["from", "lance"])
    }
    assert importers == {"storage/lanceio.py"}


def test_batches_of_long_texts_have_fewer_rows(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("text", pa.string())])
    found = []
    for width in (10, 60_000, 3_000_000):
        texts = [random.Random(number).randbytes(width // 2).hex() for number in range(8)]
        uri = str(tmp_path / f"{width}.lance")
        lanceio.create(uri, schema, [pa.record_batch([pa.array(texts)], schema)])
        found.append(lanceio.batch_rows(lanceio.open_version(uri, 1), 1024))
    assert (found[0], found[2]) == (1024, lanceio.FEWEST_BATCH_ROWS)
    assert lanceio.FEWEST_BATCH_ROWS < found[1] < 1024
    assert lanceio.batch_rows(pa.table({"text": ["a"]}), 7) == 7
