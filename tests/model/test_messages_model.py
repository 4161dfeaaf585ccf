"""Any value of any message, as hypothesis draws it, survives the wire in every version."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.wire import decode, encode, message_type
from tests.message_values import MESSAGE_NAMES, Drawn, make_message, versions_of


@pytest.mark.parametrize("name", MESSAGE_NAMES)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_message_survives_the_wire_in_every_version(name: str, data: st.DataObject) -> None:
    message = message_type(name)
    for version in versions_of(name):
        value = make_message(message, version, Drawn(data))
        encoded = encode(value, version)
        again = decode(message, encoded, version)
        assert again == value
        assert encode(again, version) == encoded
