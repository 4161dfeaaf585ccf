"""URLs of stores and options: what is refused, and that no secret is shown."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.pretty import Pretty

from headrace.config import load_settings
from headrace.remote.store import StoreRefused
from headrace.remote.store_options import (
    StoreOptions,
    StoreUrl,
    options_from,
    parse_store_url,
)

SECRETS: dict[str, Any] = {
    "access_key_id": "AKIDSECRET1",
    "secret_access_key": "VERYSECRET2",
    "session_token": "TOKENSECRET3",
}


@pytest.mark.parametrize(
    ("url", "parts", "text"),
    [
        ("file:///srv/tier/", StoreUrl("file", "", "/srv/tier"), "file:///srv/tier"),
        ("file:///a%20b", StoreUrl("file", "", "/a b"), "file:///a b"),
        ("s3://bucket", StoreUrl("s3", "bucket", ""), "s3://bucket"),
        ("s3://bucket/a/b/", StoreUrl("s3", "bucket", "a/b"), "s3://bucket/a/b"),
        ("gs://bucket/a", StoreUrl("gs", "bucket", "a"), "gs://bucket/a"),
        ("az://container/a", StoreUrl("az", "container", "a"), "az://container/a"),
        ("memory:///", StoreUrl("memory", "", ""), "memory://"),
        ("memory://", StoreUrl("memory", "", ""), "memory://"),
    ],
)
def test_urls(url: str, parts: StoreUrl, text: str) -> None:
    assert parse_store_url(url) == parts
    assert parts.text == text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/tier",
        "ftp://bucket",
        "http://bucket/x",
        "s3://",
        "s3:///prefix",
        "file://srv/tier",
        "file:srv",
        "memory://bucket",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
        "s3://bucket:80/a",
        "s3://key:VERYSECRET2@bucket/a",
        "s3://bucket/a?secret=VERYSECRET2",
        "s3://bucket/a#VERYSECRET2",
        "s3://[VERYSECRET2/a",
    ],
)
def test_urls_that_cannot_be_meant_are_refused_without_showing_a_secret(url: str) -> None:
    with pytest.raises(StoreRefused) as refusal:
        parse_store_url(url)
    assert "VERYSECRET2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("file:///srv", StoreOptions(endpoint="https://host")),
        ("memory:///", StoreOptions(allow_http=True)),
        ("gs://bucket", StoreOptions(region="eu-west-1")),
        ("gs://bucket", StoreOptions(access_key_id="VERYSECRET2")),
        ("az://container", StoreOptions(session_token="VERYSECRET2")),
        ("s3://bucket", StoreOptions(access_key_id="VERYSECRET2")),
        ("az://container", StoreOptions(secret_access_key="VERYSECRET2")),
        ("s3://bucket", StoreOptions(session_token="VERYSECRET2")),
        ("s3://bucket", StoreOptions(endpoint="http://host")),
        ("s3://bucket", StoreOptions(endpoint="host:9000")),
    ],
)
def test_options_without_effect_and_halves_are_refused(url: str, options: StoreOptions) -> None:
    with pytest.raises(StoreRefused) as refusal:
        parse_store_url(url, options)
    assert "VERYSECRET2" not in str(refusal.value)


def test_options_show_no_secret() -> None:
    options = StoreOptions(region="eu-west-1", **SECRETS)
    console = Console(file=StringIO(), width=500)
    console.print(Pretty(options))
    assert isinstance(console.file, StringIO)
    for text in (repr(options), str(options), f"{options}", console.file.getvalue()):
        assert "eu-west-1" in text
        assert not any(secret in text for secret in SECRETS.values())


@pytest.mark.parametrize(
    "options", [{"part_bytes": 1024}, {"attempts": 0}, {"request_timeout_ms": 0}, {"threads": 0}]
)
def test_numbers_have_bounds(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        StoreOptions(**options)  # type: ignore[arg-type]


def test_settings_of_a_node_become_options() -> None:
    name = "headrace.tier.store."
    settings = load_settings(
        None,
        {},
        {
            "remote.log.storage.system.enable": "true",
            "headrace.tier.store": "s3://bucket",
            f"{name}endpoint": "https://host:9000",
            f"{name}region": "eu-west-1",
            f"{name}access.key.id": SECRETS["access_key_id"],
            f"{name}secret.access.key": SECRETS["secret_access_key"],
            f"{name}session.token": SECRETS["session_token"],
            f"{name}allow.http": "true",
            f"{name}timeout.ms": "1234",
            f"{name}attempts.max": "7",
        },
    )
    assert options_from(settings) == StoreOptions(
        endpoint="https://host:9000",
        region="eu-west-1",
        allow_http=True,
        request_timeout_ms=1234,
        attempts=7,
        **SECRETS,
    )
    assert options_from(load_settings(None, {}, {})) == StoreOptions()
