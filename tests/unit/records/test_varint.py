"""Numbers are encoded as aiokafka encodes them."""

from aiokafka.record.util import encode_varint_py
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.records.varint import encode_varint


@given(st.integers(-(2**63), 2**63 - 1))
@example(0)
@example(-1)
@example(2047)
@example(2048)
@example(8191)
@example(8192)
@example(2**20 - 1)
@example(2**20)
def test_a_number_is_encoded_as_aiokafka_encodes_it(value: int) -> None:
    expected = bytearray()
    encode_varint_py(value, expected.append)
    assert encode_varint(value) == expected
