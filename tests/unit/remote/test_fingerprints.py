"""Sizes and checksums in a segment's custom metadata."""

import pytest

from headrace.remote.fingerprints import (
    Fingerprint,
    decode_fingerprints,
    encode_fingerprints,
)
from headrace.remote.layout import ObjectKind


def test_fingerprints_are_read_back_and_fit_kafkas_limit() -> None:
    every = {
        kind: Fingerprint(2**31 + number, 2**32 - number)
        for number, kind in enumerate(ObjectKind, start=1)
    }
    assert decode_fingerprints(encode_fingerprints(every)) == every
    assert len(encode_fingerprints(every)) <= 128


def test_bytes_are_as_documented() -> None:
    assert encode_fingerprints({ObjectKind.TIME_INDEX: Fingerprint(12, 0xABCD)}) == bytes.fromhex(
        "01 02 0000000c 0000abcd"
    )


@pytest.mark.parametrize("data", [None, b"", b"\x02", b"\x01\x00", b"\x01\x06" + bytes(8)])
def test_metadata_of_others_says_nothing(data: bytes | None) -> None:
    assert decode_fingerprints(data) is None
