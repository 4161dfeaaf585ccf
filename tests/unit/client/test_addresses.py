"""Bootstrap addresses."""

import pytest

from headrace.client.addresses import Address, parse_bootstrap
from headrace.client.errors import InvalidAddress


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("one, two:9093,", [Address("one", 9092), Address("two", 9093)]),
        ("PLAINTEXT://one:1", [Address("one", 1)]),
        ("[::1]:9092,[fe80::1]", [Address("::1", 9092), Address("fe80::1", 9092)]),
    ],
)
def test_lists_of_addresses_are_read(text: str, addresses: list[Address]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", ":9092", "one:port", "one:0", "one:65536", "::1", "[::1]x", "one:-1"),
        *("a..b:9092", ".a", "a b", "a\x00", f"{'a' * 64}.b"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        parse_bootstrap(text)


def test_an_ipv6_address_is_written_as_it_is_read() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
