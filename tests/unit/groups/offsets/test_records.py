"""Records of offsets: their bytes are what the codec of any message gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.records import encode_record
from headrace.groups.offsets.records import NO_EXPIRY, OffsetRecords

TEXTS = st.text(max_size=200)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))


@given(group=TEXTS, topic=TEXTS, topic_id=IDS, now_ms=INT64, data=st.data())
def test_the_quick_way_and_the_codec_write_the_same(
    group: str, topic: str, topic_id: bytes, now_ms: int, data: st.DataObject
) -> None:
    records = OffsetRecords(group, topic, topic_id, now_ms, NO_EXPIRY)
    record = records.make(data.draw(INT32), data.draw(INT64), data.draw(INT32), data.draw(TEXTS))
    assert record.encoded is not None
    assert record.encoded == encode_record(record._replace(encoded=None))


@pytest.mark.parametrize("expires_ms", [0, 17, 2**62])
def test_a_record_that_ends_at_a_time_of_its_own_has_the_version_for_it(expires_ms: int) -> None:
    record = OffsetRecords("g", "a", bytes(16), 11, expires_ms).make(0, 5, 3, "m")
    _, value = encode_record(record)
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert value.endswith(expires_ms.to_bytes(8, "big"))
