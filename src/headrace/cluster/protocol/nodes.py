"""What a node says of itself when it registers: addresses, capabilities, tags.

Addresses are numbers, never host names: a node that advertises a name cannot be registered by
this protocol (`responses.BrokerMetadata` does carry names).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, TypeAlias

from msgspec import field

from headrace.cluster.protocol.names import NodeId
from headrace.cluster.protocol.postcard import U16, Form, Octets


class SocketAddressV4(Form, frozen=True, tag=0):
    octets: Annotated[bytes, Octets(4)]
    port: U16

    @property
    def host(self) -> str:
        """The address as people write it."""
        return str(IPv4Address(self.octets))


class SocketAddressV6(Form, frozen=True, tag=1):
    """Flow label and scope are not carried."""

    octets: Annotated[bytes, Octets(16)]
    port: U16

    @property
    def host(self) -> str:
        """The address as people write it, without brackets."""
        return str(IPv6Address(self.octets))


SocketAddress: TypeAlias = SocketAddressV4 | SocketAddressV6


def socket_address(host: str, port: int) -> SocketAddress:
    """Return the address of an IPv4 or IPv6 host; ValueError if it is a name or has a scope."""
    address = ip_address(host)
    if isinstance(address, IPv4Address):
        return SocketAddressV4(address.packed, port)
    if address.scope_id is not None:
        raise ValueError(f"{host!r} has a scope, which the protocol cannot carry")
    return SocketAddressV6(address.packed, port)


class Capabilities(Form, frozen=True):
    """What a node may be used for."""

    voter: bool = True
    leader_eligible: bool = True
    replica_eligible: bool = True


class NodeInfo(Form, frozen=True, kw_only=True):
    id: NodeId
    name: str | None = None
    """For people."""
    rack: str | None = None
    client_addr: SocketAddress
    cluster_addr: SocketAddress
    capabilities: Capabilities = Capabilities()
    version: str = ""
    """The software's, for people; the protocol's is in the header of a request."""
    tags: dict[str, str] = field(default_factory=dict)
