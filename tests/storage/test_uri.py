"""The one reader of lake URIs."""

import os

import pytest

from chronicle.errors import ConfigError
from chronicle.storage.uri import is_s3, lake_path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/data/lake", "/data/lake"),
        ("/data/lake/", "/data/lake"),
        ("/data/../lake//x", "/lake/x"),
        ("file:///data/lake/", "/data/lake"),
        ("FILE://localhost/data", "/data"),
        ("file:///a%20b", "/a%20b"),
        ("/odd?name#x", "/odd?name#x"),
        ("/", "/"),
    ],
)
def test_local_places(uri, path):
    assert lake_path(uri) == path


def test_relative_paths_count_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lake_path("lake/") == os.path.join(os.getcwd(), "lake")
    assert lake_path("c:x") == os.path.join(os.getcwd(), "c:x")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("S3://bucket/a b/%41#?+[日本]/", "s3://bucket/a b/%41#?+[日本]"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket///", "s3://bucket"),
    ],
)
def test_object_stores(uri, path):
    assert lake_path(uri) == path
    assert is_s3(path)


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3://b", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/./b"])
def test_prefixes_that_cannot_be_one_place(uri):
    with pytest.raises(ConfigError):
        lake_path(uri)


@pytest.mark.parametrize("uri", ["gs://b/p", "http://host/x"])
def test_other_stores_are_refused_by_name(uri):
    with pytest.raises(ConfigError, match="is not supported") as caught:
        lake_path(uri)
    assert caught.value.exit_code == 78
    assert uri in str(caught.value)


@pytest.mark.parametrize("uri", ["", "a\0b", "file://host/data", "file://"])
def test_what_is_no_place(uri):
    with pytest.raises(ConfigError):
        lake_path(uri)
