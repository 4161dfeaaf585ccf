"""Datagrams whose sender, receiver, cluster, life and novelty are certain."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.cluster.swim import sealing
from headrace.cluster.swim.sealing import SEAL_BYTES_MAX, WINDOW, Opened, Refusal, Sealer
from headrace.ids import BrokerId as NodeId

ALLOWED = {NodeId(1), NodeId(2)}


def sealer(
    node: int,
    boot_epoch: int = 1,
    *,
    cluster_id: str = "mill",
    secret: bytes | None = b"s3cret",
) -> Sealer:
    return Sealer(NodeId(node), boot_epoch, cluster_id=cluster_id, secret=secret)


def sealed(data: bytes = b"hello", *, to: int = 2) -> bytes:
    return sealer(1).seal(NodeId(to), data)


@pytest.mark.parametrize("secret", [b"s3cret", None])
def test_what_is_sealed_is_opened(secret: bytes | None) -> None:
    datagram = sealer(1, 7, secret=secret).seal(NodeId(2), b"hello")
    assert sealer(2, secret=secret).open(datagram, ALLOWED) == Opened(NodeId(1), 7, b"hello")
    assert len(datagram) <= SEAL_BYTES_MAX + 5


def test_any_changed_bit_is_noticed() -> None:
    datagram = sealed()
    receiver = sealer(2)
    for at in range(len(datagram) * 8):
        changed = bytearray(datagram)
        changed[at // 8] ^= 1 << at % 8
        assert isinstance(receiver.open(bytes(changed), ALLOWED), Refusal)
    assert isinstance(receiver.open(datagram, ALLOWED), Opened)


@given(some.binary(max_size=300))
def test_any_bytes_are_refused_without_a_trace(data: bytes) -> None:
    receiver = sealer(2)
    assert isinstance(receiver.open(data, ALLOWED), Refusal)
    assert receiver.window_count == 0


def test_a_datagram_is_taken_once() -> None:
    datagram = sealed()
    receiver = sealer(2)
    assert isinstance(receiver.open(datagram, ALLOWED), Opened)
    assert receiver.open(datagram, ALLOWED) is Refusal.REPLAYED


def test_datagrams_may_overtake_each_other_within_the_window() -> None:
    sender, receiver = sealer(1), sealer(2)
    sent = [sender.seal(NodeId(2), b"%d" % number) for number in range(WINDOW + 1)]
    assert isinstance(receiver.open(sent[-1], ALLOWED), Opened)
    assert receiver.open(sent[0], ALLOWED) is Refusal.REPLAYED
    for datagram in sent[1:-1]:
        assert isinstance(receiver.open(datagram, ALLOWED), Opened)
        assert receiver.open(datagram, ALLOWED) is Refusal.REPLAYED


def test_a_datagram_for_another_node_is_refused() -> None:
    assert sealer(2).open(sealed(to=3), ALLOWED) is Refusal.MISDIRECTED


def test_a_datagram_of_another_cluster_is_refused() -> None:
    assert sealer(2, cluster_id="forge").open(sealed(), ALLOWED) is Refusal.CLUSTER


def test_the_same_secret_makes_another_key_in_another_cluster() -> None:
    datagram = sealed()
    receiver = sealer(2, cluster_id="forge")
    receiver._cluster = sealer(2)._cluster
    assert receiver.open(datagram, ALLOWED) is Refusal.TAG


def test_a_datagram_of_another_version_is_refused() -> None:
    assert sealer(2).open(b"\x02" + sealed()[1:], ALLOWED) is Refusal.VERSION


def test_a_wrong_secret_or_none_is_refused_both_ways() -> None:
    unsealed = sealer(1, secret=None).seal(NodeId(2), bytes(64))
    assert sealer(2, secret=b"other").open(sealed(), ALLOWED) is Refusal.TAG
    assert sealer(2).open(unsealed, ALLOWED) is Refusal.TAG
    assert sealer(2, secret=None).open(sealed(), ALLOWED) is Refusal.TAG


def test_a_stranger_costs_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    datagram, receiver = sealer(5).seal(NodeId(2), b"hello"), sealer(2)

    def hash_nothing(*args: object) -> bytes:
        raise AssertionError("hashed")

    monkeypatch.setattr(sealing, "hmac_digest", hash_nothing)
    assert receiver.open(datagram, ALLOWED) is Refusal.STRANGER


def test_a_node_does_not_take_its_own_datagrams() -> None:
    assert sealer(2).open(sealer(2).seal(NodeId(2), b""), ALLOWED) is Refusal.STRANGER


def test_a_new_life_begins_to_count_anew_and_ends_the_former() -> None:
    receiver = sealer(2)
    former = sealer(1, 1)
    early, late = former.seal(NodeId(2), b"early"), former.seal(NodeId(2), b"late")
    assert isinstance(receiver.open(early, ALLOWED), Opened)
    assert isinstance(receiver.open(sealer(1, 2).seal(NodeId(2), b"new"), ALLOWED), Opened)
    assert receiver.open(late, ALLOWED) is Refusal.STALE


def test_windows_go_with_the_members() -> None:
    receiver = sealer(2)
    receiver.open(sealed(), ALLOWED)
    assert receiver.window_count == 1
    receiver.retain({NodeId(2)})
    assert receiver.window_count == 0
