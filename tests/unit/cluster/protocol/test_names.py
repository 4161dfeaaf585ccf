import pytest

from headrace.cluster.protocol.names import node_id_of, numbered_broker
from headrace.ids import BrokerId


@pytest.mark.parametrize("number", [0, 1, 10, 2**31 - 1])
def test_a_brokers_text_is_its_number_and_names_it(number: int) -> None:
    assert node_id_of(BrokerId(number)) == str(number)
    assert numbered_broker(str(number)) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1 ", "01", "00", "1_0", "0x1", "1.0", "node-1", "٣", "²"]
)
def test_any_other_text_names_no_numbered_broker(text: str) -> None:
    assert numbered_broker(text) is None


@pytest.mark.parametrize("text", ["2147483648", "9999999999", "9" * 5000])
def test_a_number_above_the_last_broker_names_none(text: str) -> None:
    assert numbered_broker(text) is None
