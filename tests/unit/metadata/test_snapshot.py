import struct

import pytest
from crc32c import crc32c
from msgspec import msgpack

from headrace.metadata.applier import Applier
from headrace.metadata.errors import InvalidSnapshot
from headrace.metadata.image import Image
from headrace.metadata.snapshot import load_snapshot, take_snapshot
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
        (sealed(b"\x80", version=2), "version 2"),
        (sealed(b"\x80")[:-1], "CRC32C"),
        (sealed(b"\x80" + b"\x00"), "cannot be read"),
        (sealed(msgpack.encode({"applied_index": "x"})), "cannot be read"),
        (sealed(msgpack.encode({"of_the_future": 1})), "of_the_future"),
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
