"""A node has the certificate and the CAs that are on its disk, whatever fails between the two."""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.cluster.encryption import authority_keys, node_tls
from headrace.cluster.encryption.authority_keys import AuthorityKeys
from headrace.cluster.encryption.enrolment import Enrolment
from headrace.cluster.encryption.key_files import (
    KeyFileUnreadable,
    load_node,
    store_authorities,
    store_node,
)
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.transport.links import Links
from headrace.log.real_disk import RealDisk
from headrace.security.node_certificates import (
    BadCertificate,
    Validity,
    key_pem,
    make_authority,
    make_request,
    moment,
    new_key,
    sign,
    valid_for,
    validity_of,
)
from headrace.security.node_names import NodeName

DEADLINE_SECONDS = 30
NOW_MS = 1_800_000_000_000
NOW = moment(NOW_MS)
DAY = timedelta(days=1)
NAME = NodeName(2, b"f" * 16)
CA = make_authority(NOW - DAY)
NEXT_CA = make_authority(NOW, [CA.certificate])


def load(folder: Path) -> NodeTls:
    return NodeTls(RealDisk(folder), NAME, (), lambda: NOW_MS)


def certified(folder: Path, days: int = 10) -> NodeTls:
    tls = load(folder)
    tls.install(sign(tls.request(), NAME, CA, valid_for(days, NOW)), [CA.certificate])
    return tls


def fail(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


def check_same(tls: NodeTls) -> None:
    """What a node says, shows, and has on its disk is the same."""
    stored = load_node(tls._disk)
    assert stored is not None
    assert tls.server_context().own == tls.certificate == stored.certificate  # type: ignore[attr-defined]
    assert tls.trusted == stored.trusted
    for context in (tls.server_context(), tls.client_context(), tls.listener_context()):
        assert set(context.get_ca_certs(binary_form=True)) == set(tls.trusted)


def test_what_cannot_be_stored_is_not_used_and_works_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certified(tmp_path)
    ends = validity_of(tls.certificate).ends
    renewed = sign(tls.request(), NAME, CA, valid_for(90, NOW))
    with monkeypatch.context() as patch:
        patch.setattr(node_tls, "store_node", fail)
        with pytest.raises(OSError, match="space"):
            tls.install(renewed, [CA.certificate])
        with pytest.raises(OSError, match="space"):
            tls.trust([CA.certificate, NEXT_CA.certificate])
    check_same(tls)
    assert tls.trusted == (CA.certificate,)
    assert tls.validity is not None
    assert tls.validity.ends == ends
    tls.install(renewed, [CA.certificate])
    assert tls.trust([CA.certificate, NEXT_CA.certificate])
    check_same(tls)
    assert tls.validity.ends > ends
    assert load(tmp_path).trusted == (CA.certificate, NEXT_CA.certificate)


def test_a_key_of_a_ca_that_cannot_be_stored_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = AuthorityKeys(RealDisk(tmp_path))
    asyncio.run(keys.add(CA))
    with monkeypatch.context() as patch:
        patch.setattr(authority_keys, "store_authorities", fail)
        with pytest.raises(OSError, match="space"):
            asyncio.run(keys.add(NEXT_CA))
        with pytest.raises(OSError, match="space"):
            asyncio.run(keys.keep_only(()))
    assert keys.fingerprints == (CA.fingerprint,)
    asyncio.run(keys.add(NEXT_CA))
    asyncio.run(keys.keep_only([NEXT_CA.fingerprint]))
    assert keys.fingerprints == AuthorityKeys(RealDisk(tmp_path)).fingerprints
    assert keys.fingerprints == (NEXT_CA.fingerprint,)


class SlowDisk:
    """Stores when the loop says so, which it cannot while it waits for the disk itself."""

    def __init__(self, store: Callable[..., None]) -> None:
        self._store = store
        self.has_begun, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, *arguments: object) -> None:
        self.has_begun.set()
        assert self.goes_on.wait(DEADLINE_SECONDS), "the loop stands still"
        self._store(*arguments)

    async def until_begun(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not self.has_begun.is_set():
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_the_loop_goes_on_while_a_renewed_certificate_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    tls = certified(tmp_path)
    before = tls.certificate
    disk = SlowDisk(store_node)
    monkeypatch.setattr(node_tls, "store_node", disk)

    async def play() -> bytes:
        enrolment = Enrolment(cast(Links, None), tls, "127.0.0.1:1", "")
        request = enrolment.wanted().request
        renewed = sign(request, NAME, CA, valid_for(90, NOW))
        taking = asyncio.ensure_future(enrolment.take(renewed, [CA.certificate]))
        await disk.until_begun()
        assert tls.certificate == before, "it is used once it is stored"
        if is_cancelled:
            taking.cancel()
            await asyncio.sleep(0)
            assert not taking.done(), "nothing else may write meanwhile"
        disk.goes_on.set()
        await asyncio.wait({taking})
        assert taking.cancelled() == is_cancelled
        return renewed

    renewed = asyncio.run(play())
    assert tls.certificate == (before if is_cancelled else renewed)
    assert load(tmp_path).certificate == renewed


def test_keys_of_cas_that_come_at_once_are_stored_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = AuthorityKeys(RealDisk(tmp_path))
    disk = SlowDisk(store_authorities)
    monkeypatch.setattr(authority_keys, "store_authorities", disk)

    async def play() -> None:
        adding: Any = asyncio.gather(keys.add(CA), keys.add(NEXT_CA))
        await disk.until_begun()
        assert keys.fingerprints == (), "a key is there once it is stored"
        disk.goes_on.set()
        await adding

    asyncio.run(play())
    both = tuple(sorted((CA.fingerprint, NEXT_CA.fingerprint)))
    assert keys.fingerprints == both
    assert AuthorityKeys(RealDisk(tmp_path)).fingerprints == both


@pytest.mark.parametrize("skew", [3 * DAY, -20 * DAY])
def test_a_certificate_that_is_not_valid_now_does_not_replace_one_that_is(
    tmp_path: Path, skew: timedelta
) -> None:
    tls = certified(tmp_path)
    early = make_authority(NOW - 30 * DAY)
    tls.trust([early.certificate, CA.certificate])
    signer = CA if skew > timedelta(0) else early
    before = tls.certificate
    made = sign(tls.request(), NAME, signer, valid_for(1, NOW + skew))
    with pytest.raises(BadCertificate, match=r"clocks of this node and of|older CA"):
        tls.install(made, tls.trusted)
    assert tls.certificate == before
    assert tls.is_certified
    check_same(tls)


def test_a_controller_whose_clock_is_before_its_ca_signs_nothing() -> None:
    wrong = NOW - 30 * DAY
    with pytest.raises(BadCertificate, match="the clock of the controller is wrong"):
        sign(make_request(new_key()), NAME, CA, Validity(wrong, wrong + DAY))


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("key", "garbage"),
        ("key", key_pem(new_key())),
        ("certificate", "AAAA"),
        ("trusted", ["AAAA"]),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(
    tmp_path: Path, field: str, content: object
) -> None:
    certified(tmp_path)
    path = tmp_path / "node-tls.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: content}))
    with pytest.raises(KeyFileUnreadable, match=r"node-tls\.json .*join token"):
        load(tmp_path)
