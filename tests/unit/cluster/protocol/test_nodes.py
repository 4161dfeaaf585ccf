import pytest

from headrace.cluster.protocol.nodes import SocketAddressV4, SocketAddressV6, socket_address


@pytest.mark.parametrize("host", ["127.0.0.1", "255.255.255.255", "::1", "2001:db8::ff00:42:8329"])
def test_an_address_is_the_text_it_was_made_from(host: str) -> None:
    address = socket_address(host, 65535)
    assert (address.host, address.port) == (host, 65535)
    assert isinstance(address, SocketAddressV6 if ":" in host else SocketAddressV4)


@pytest.mark.parametrize("host", ["localhost", "", "127.0.0.1:9092", "[::1]", "fe80::1%eth0"])
def test_a_name_or_a_scope_is_no_address(host: str) -> None:
    with pytest.raises(ValueError, match=r"address|scope"):
        socket_address(host, 1)
