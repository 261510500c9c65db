"""How to reach an object store: whose word counts, and what is never shown."""

import pytest

from chronicle.storage import s3config
from chronicle.storage.s3client import lance_options
from chronicle.storage.s3config import S3Options, options

KEYS = {"AWS_ACCESS_KEY_ID": "the-key", "AWS_SECRET_ACCESS_KEY": "the-secret", "AWS_SESSION_TOKEN": "the-token"}


def test_the_usual_variables():
    found = options(KEYS | {"AWS_ENDPOINT_URL": "http://a", "AWS_DEFAULT_REGION": "r1", "AWS_PROFILE": "p"})
    assert (found.endpoint, found.region, found.profile) == ("http://a", "r1", "p")
    assert (found.key, found.secret, found.token) == ("the-key", "the-secret", "the-token")
    assert not found.anonymous
    assert not found.single_writer
    assert options({}) == S3Options()


def test_our_own_variables_win():
    usual = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b", "AWS_REGION": "r1", "AWS_PROFILE": "p"}
    ours = {"CHRONICLE_S3_ENDPOINT": "http://c", "CHRONICLE_S3_REGION": "r2", "CHRONICLE_S3_ANONYMOUS": "true"}
    assert options(usual).endpoint == "http://b"
    found = options(usual | ours | {"CHRONICLE_SINGLE_WRITER": "1"})
    assert (found.endpoint, found.region, found.anonymous, found.single_writer) == ("http://c", "r2", True, True)
    assert options(KEYS | {"CHRONICLE_S3_PROFILE": "mine"}).key is None, "a profile that was asked for brings its own keys"


def test_settings_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a")
    try:
        s3config.configure(endpoint="http://c", anonymous=True, single_writer=False, region=None)
        assert (options().endpoint, options().anonymous) == ("http://c", True)
        assert s3config.exported() == {"CHRONICLE_S3_ENDPOINT": "http://c", "CHRONICLE_S3_ANONYMOUS": "true"}
    finally:
        s3config.configure()
    assert options().endpoint == "http://a"


def test_secrets_are_not_shown():
    shown = repr(options(KEYS))
    assert "the-secret" not in shown
    assert "the-token" not in shown


def test_lance_is_told_the_same():
    told = lance_options(options(KEYS | {"AWS_ENDPOINT_URL": "http://a", "AWS_REGION": "r"}))
    assert told["aws_endpoint"] == "http://a"
    assert told["allow_http"] == "true"
    assert (told["aws_region"], told["aws_access_key_id"], told["aws_session_token"]) == ("r", "the-key", "the-token")
    assert {"client_max_retries", "client_retry_timeout", "timeout", "connect_timeout"} <= told.keys()
    assert lance_options(S3Options(endpoint="https://a", anonymous=True, region="r"))["aws_skip_signature"] == "true"


def test_keys_of_a_profile(tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = k\naws_secret_access_key = s\n")
    (tmp_path / "config").write_text("[profile mine]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    told = lance_options(S3Options(profile="mine"))
    assert (told["aws_access_key_id"], told["aws_secret_access_key"], told["aws_region"]) == ("k", "s", "eu-north-1")
    from chronicle.errors import ConfigError

    with pytest.raises(ConfigError, match="other"):
        lance_options(S3Options(profile="other"))
