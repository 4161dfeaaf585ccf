"""Certificates that are replaced while a node runs."""

import asyncio
import ssl
import stat
from pathlib import Path

import pytest

from headrace.config import load_settings
from headrace.security import certificates
from headrace.security.certificates import Certificates
from tests.node_certificates import authority, sign, write_node

NOW_MS = 1_800_000_000_000


@pytest.fixture
def watched(tmp_path: Path) -> Certificates:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        **write_node(tmp_path),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    return Certificates(load_settings(overrides=settings), ["SSL"], lambda: NOW_MS)


def look(watched: Certificates) -> int:
    asyncio.run(watched.look())
    return watched.reloads


def test_a_file_that_could_not_be_read_is_read_once_it_can_be(
    watched: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new key may come with the wrong rights, which are put right without its being written."""
    write_node(tmp_path, sign("localhost", authority(), days=700))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)
        assert [look(watched) for _ in range(3)] == [0, 0, 0]
    assert caplog.text.count("the former certificate stays in use") == 1
    assert look(watched) == 1
    assert look(watched) == 1


def refuse(*arguments: object, **more: object) -> bytes:
    raise PermissionError(13, "Permission denied")


def test_a_change_of_rights_alone_is_a_change(watched: Certificates, tmp_path: Path) -> None:
    before = certificates._stamp([str(tmp_path / "node.pem")])
    mode = stat.S_IMODE((tmp_path / "node.pem").stat().st_mode)
    (tmp_path / "node.pem").chmod(mode ^ stat.S_IRGRP)
    assert certificates._stamp([str(tmp_path / "node.pem")]) != before


@pytest.mark.parametrize("kind", ["letters", "cut", "junk", "padding"])
def test_a_damaged_trust_store_leaves_the_former_one_in_use(
    watched: Certificates, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = authority().certificate_pem
    damaged = {
        "letters": text.replace("\n", "\u00a0\n", 3),
        "cut": text[:300],
        "junk": "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
        "padding": text.replace("-----END", "AAAA\n-----END"),
    }
    former = watched.context("SSL")
    (tmp_path / "ca.pem").write_text(damaged[kind])
    reloads = look(watched)
    if not reloads:  # what OpenSSL still reads is a trust store
        assert watched.context("SSL") is former
        assert "the former certificate stays in use" in caplog.text
    (tmp_path / "ca.pem").write_text(text)
    assert look(watched) == reloads + 1
    assert watched.context("SSL") is not former


def test_no_error_ends_the_looking(
    watched: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = []

    async def look_badly(each: Certificates) -> None:
        looks.append(each)
        if len(looks) == 3:
            watched.stop()
        raise ssl.SSLError("what nobody thought of")

    async def run() -> None:
        watched.start()
        task = watched._task
        assert task is not None
        await asyncio.wait([task])

    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0)
    monkeypatch.setattr(Certificates, "look", look_badly)
    asyncio.run(run())
    assert len(looks) == 3
    assert "certificates cannot be looked at" in caplog.text
