"""Which connection makes room where there are too many."""

from collections.abc import Iterable

import pytest

from headrace.cluster.transport.crowd import Crowd, network_of


def crowd_of(most: int, addresses: Iterable[str]) -> Crowd[str]:
    crowd: Crowd[str] = Crowd(most)
    for each in addresses:
        assert crowd.add(each, each) is None
    return crowd


def test_the_oldest_of_the_host_that_has_the_most_makes_room() -> None:
    crowd = crowd_of(4, ["a:1", "b:1", "b:2", "c:1"])
    assert crowd.add("a:2", "a:2") == ("a:1", "a:1")
    assert crowd.add("b:3", "b:3") == ("b:1", "b:1")
    assert sorted(crowd) == ["a:2", "b:2", "b:3", "c:1"]


def test_among_hosts_with_one_each_the_oldest_goes_and_never_the_one_that_came() -> None:
    crowd = crowd_of(2, ["a:1", "b:1"])
    assert crowd.add("c:1", "c:1") == ("a:1", "a:1")
    assert crowd.add("d:1", "d:1") == ("b:1", "b:1")
    assert crowd_of(1, ["a:1"]).add("a:2", "a:2") == ("a:1", "a:1")


def test_a_host_that_has_gone_counts_no_more() -> None:
    crowd = crowd_of(3, ["a:1", "a:2", "b:1"])
    for each in ("a:1", "a:2", "a:2"):
        crowd.discard(each)
    assert len(crowd) == 1
    assert crowd.add("c:1", "c:1") is None
    assert crowd.add("c:2", "c:2") is None
    assert crowd.add("b:2", "b:2") == ("b:1", "b:1")


def test_hosts_of_ipv6_are_told_apart() -> None:
    crowd = crowd_of(3, ["::1:1", "::1:2", "::2:1"])
    assert crowd.add("::2:2", "::2:2") == ("::1:1", "::1:1")


def test_a_host_that_takes_ever_new_addresses_of_its_network_drives_out_its_own() -> None:
    """Any host of IPv6 may take all the addresses of its network, which has 64 bits for them."""
    crowd = crowd_of(4, ["2001:db8:1::9:1", *(f"2001:db8:2::{each}:1" for each in (1, 2, 3))])
    for number in range(4, 40):
        oldest = f"2001:db8:2::{number - 3}:1"
        address = f"2001:db8:2::{number}:1"
        assert crowd.add(address, address) == (oldest, oldest)
    assert "2001:db8:1::9:1" in list(crowd)


def test_and_one_of_the_same_network_that_keeps_its_address_is_told_apart() -> None:
    crowd = crowd_of(3, ["2001:db8::7:1", "2001:db8::8:1", "2001:db8::8:2"])
    assert crowd.add("2001:db8::8:3", "2001:db8::8:3") == ("2001:db8::8:1", "2001:db8::8:1")


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:1::7", "2001:db8:0:1::"),
        ("fe80::7%eth0", "fe80::"),
        ("node-1", "node-1"),
        ("", ""),
    ],
)
def test_a_network_is_what_one_host_may_have(host: str, network: str) -> None:
    assert network_of(host) == network
