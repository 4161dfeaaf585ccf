import struct
from typing import Any

import pytest
from crc32c import crc32c
from msgspec import Struct, field, msgpack, structs

from headrace.metadata import snapshot, state
from headrace.metadata.applier import Applier
from headrace.metadata.errors import InvalidSnapshot
from headrace.metadata.features import HEADRACE_VERSION, LEVEL
from headrace.metadata.image import Image
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.metadata.state import ImageState
from tests.unit.metadata.clusters import (
    ORDERS,
    Cluster,
    assign,
    join,
    with_orders,
)


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">4sHI", b"HRIM", version, crc32c(body)) + body


def test_an_empty_image_comes_back() -> None:
    assert load_snapshot(take_snapshot(Applier(Image()))) == Image()


def test_a_loaded_image_gives_the_same_snapshot() -> None:
    data = take_snapshot(with_orders(assign(1, 2)).applier)
    assert take_snapshot(Applier(load_snapshot(data))) == data


def test_a_snapshot_with_every_field_written_is_read() -> None:
    fields = structs.asdict(with_orders().image.state)
    assert load_snapshot(sealed(msgpack.encode(fields))) == with_orders().image


def test_a_loaded_image_answers_and_goes_on() -> None:
    cluster = with_orders(assign(1, 2), assign(2, 3))
    loaded = Cluster(load_snapshot(take_snapshot(cluster.applier)))
    assert loaded.image == cluster.image
    assert loaded.image.applied_index == 1
    assert loaded.image.group(2) == cluster.image.group(2)
    assert loaded.applier.apply(cluster.log) == 1
    loaded.propose(join(9))
    assert loaded.image != cluster.image
    assert cluster.image.topic(ORDERS) is not loaded.image.topic(ORDERS)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off"),
        (b"XXXX" + bytes(20), "begins with"),
        (sealed(b"\x80", version=3), "needs software that reads version 3, and this reads up to 2"),
        (sealed(b"\x80", version=0), "version 0"),
        (sealed(b"\x80")[:-1], "CRC32C"),
        (sealed(b"\x80" + b"\x00"), "cannot be read"),
        (sealed(msgpack.encode({"applied_index": "x"})), "cannot be read"),
        (sealed(msgpack.encode({"of_the_future": 1})), "of_the_future.*upgrade this node"),
        (sealed(msgpack.encode({"~hint": 1, "of_the_future": 1})), "of_the_future"),
        (sealed(msgpack.encode({"~hint": 1, "applied_index": "x"})), "cannot be read"),
        (sealed(msgpack.encode({"~hint": 1, 7: 1})), "cannot be read"),
    ],
)
def test_what_is_no_snapshot_is_an_error_that_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidSnapshot, match=reason):
        load_snapshot(data)


def test_any_flipped_bit_is_noticed() -> None:
    data = take_snapshot(with_orders().applier)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        with pytest.raises(InvalidSnapshot):
            load_snapshot(bytes(flipped))


@pytest.mark.parametrize(("level", "version"), [(0, 1), (1, 2)])
def test_a_cluster_at_a_new_level_writes_no_snapshot_for_older_software(
    level: int, version: int
) -> None:
    image = Image()
    image.state.features.update({"metadata.version": 30, HEADRACE_VERSION: level})
    data = take_snapshot(Applier(image))
    assert struct.unpack_from(">4sH", data) == (b"HRIM", version)
    assert load_snapshot(data) == image


class FutureState(ImageState):
    """The state of software to come, with a fact, and with a hint that nothing rests on."""

    mirrors: dict[str, str] = field(default_factory=dict)
    hint: str = field(default="", name="~hint")


def future_snapshot(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> bytes:
    """Return what a node of newer software writes that reads up to version 3."""
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "VERSION", 3)
        patch.setitem(snapshot.SINCE, "mirrors", 3)
        return take_snapshot(Applier(Image(FutureState(applied_index=7, **fields))))


def test_fields_that_newer_software_has_not_used_yet_keep_nobody_from_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = future_snapshot(monkeypatch)
    assert load_snapshot(data) == Image(ImageState(applied_index=7))


def test_a_fact_of_newer_software_is_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    data = future_snapshot(monkeypatch, mirrors={"a": "b"})
    with pytest.raises(InvalidSnapshot, match=r"version 3, and this reads up to 2.*upgrade"):
        load_snapshot(data)


def test_what_newer_software_marked_as_a_hint_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    data = future_snapshot(monkeypatch, hint="x")
    assert load_snapshot(data) == Image(ImageState(applied_index=7))


def test_fields_are_those_of_the_version() -> None:
    """See `snapshot`: a field that is added belongs to SINCE, a row that grows to ROWS_SINCE."""
    names = set(ImageState.__struct_encode_fields__) - snapshot.SINCE.keys()
    assert {name for name in names if not name.startswith("~")} == FIRST_FIELDS
    versions = (snapshot.ROWS_SINCE, *snapshot.SINCE.values(), *snapshot.LEVELS_SINCE.values())
    assert max(versions) == snapshot.VERSION
    assert list(snapshot.LEVELS_SINCE) == list(range(1, LEVEL + 1))
    rows = (each for each in vars(state).values() if isinstance(each, type))
    sizes = {
        row.__name__: len(row.__struct_fields__)
        for row in rows
        if issubclass(row, Struct) and row.__struct_config__.array_like
    }
    assert (snapshot.ROWS_SINCE, sizes) == (1, ROW_SIZES)


FIRST_FIELDS = {
    "applied_index",
    "cluster_id",
    "cluster_version",
    "catalog_entries_applied",
    "topics",
    "next_vshard",
    "regrouped",
    "brokers",
    "next_broker_epoch",
    "configs",
    "features",
    "acls",
    "scram_credentials",
    "quotas",
    "delegation_tokens",
    "surrogate_hwm",
    "nodes",
    "topology_version",
    "metadata_group",
    "leases",
    "drains",
    "ca_certificates",
    "join_tokens",
    "migrations",
    "finished_migrations",
    "ghosts",
}
ROW_SIZES = {
    "DescriptorId": 3,
    "DescriptorLease": 4,
    "Hlc": 2,
    "Partition": 11,
    "Topic": 5,
    "Endpoint": 4,
    "Broker": 10,
    "AclPattern": 3,
    "Acl": 5,
    "ScramCredential": 4,
    "DelegationToken": 8,
    "Node": 3,
    "ReplicationGroup": 3,
    "Drain": 2,
    "JoinTokenState": 5,
    "MigrationRow": 10,
    "GhostStub": 2,
}
