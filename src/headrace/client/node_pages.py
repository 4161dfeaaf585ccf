"""The HTTP pages of Headrace nodes: where they are, and what is on one.

A node's config `http.listen` has the address of its pages, and `headrace.http.security.protocol`
whether they use TLS. A client's own security applies to them too: its certificates, and the name
and the password that it has for PLAIN or SCRAM.
"""

import base64
import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Final

import msgspec

from headrace.client.addresses import Address, parse_address
from headrace.client.cluster import Cluster
from headrace.client.configs import Resource, ResourceType, describe_configs
from headrace.client.errors import ClientError, NotReachable
from headrace.client.outcomes import values_of
from headrace.client.security.settings import PLAINTEXT, SSL, ClientSecurity, TlsSettings

TIMEOUT_SECONDS: Final = 30
PAGE_BYTES_MAX: Final = 256 * 1024 * 1024
HTTP_LISTEN: Final = "http.listen"
HTTP_SECURITY_PROTOCOL: Final = "headrace.http.security.protocol"
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})
_HTTPS: Final = "https://"


class NoPage(ClientError):
    """A node has no pages, not this one, or is no Headrace."""


class Pages(msgspec.Struct, frozen=True):
    """Where a node has its pages, and how to get there."""

    address: Address
    uses_tls: bool = False
    security: ClientSecurity = PLAINTEXT

    def __str__(self) -> str:
        return f"{_HTTPS}{self.address}" if self.uses_tls else str(self.address)


def pages_at(text: str, security: ClientSecurity = PLAINTEXT) -> Pages:
    """Return the pages at HOST:PORT, or with TLS at https://HOST:PORT."""
    return Pages(parse_address(text), text.lower().startswith(_HTTPS), security)


async def find_page(cluster: Cluster, node_id: int) -> Pages:
    """Return where a node has its pages; raise NoPage if it has none."""
    resource = Resource(ResourceType.BROKER, str(node_id))
    names = [HTTP_LISTEN, HTTP_SECURITY_PROTOCOL]
    found = values_of(await describe_configs(cluster, [resource], names=names))
    values = {row.name: row.value for row in found[resource]}
    listen = values.get(HTTP_LISTEN)
    if not listen:
        raise NoPage(
            f"node {node_id} has no pages: its {HTTP_LISTEN} is empty, or it is no Headrace"
        )
    host, _, port = listen.rpartition(":")
    if (host := host.strip("[]")) in _ANY_HOST:
        host = cluster.view.nodes[node_id].address.host
    uses_tls = values.get(HTTP_SECURITY_PROTOCOL) == SSL
    return Pages(Address(host, int(port)), uses_tls, cluster.settings.security)


def get_page(pages: Pages, path: str) -> bytes:
    """Return a page; raise NotReachable or NoPage, with what the node said."""
    connection = _connect(pages)
    try:
        connection.request("GET", path, headers=login_header(pages))
        answer = connection.getresponse()
        page = answer.read(PAGE_BYTES_MAX)
    except ssl.SSLError as error:
        raise NotReachable(f"no page from {pages}: TLS failed: {error.reason or error}") from None
    except (OSError, HTTPException) as error:
        raise NotReachable(f"no page from {pages}: {error}") from None
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        said = page.decode(errors="replace").strip()
        raise NoPage(f"{pages}: {said or answer.reason}")
    return page


def _connect(pages: Pages) -> HTTPConnection:
    host, port = pages.address.host, pages.address.port
    if not pages.uses_tls:
        return HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    from headrace.client.security.tls import tls_context  # noqa: PLC0415  not for all

    context = tls_context(pages.security.tls or TlsSettings())
    return HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def login_header(pages: Pages) -> dict[str, str]:
    """Return the header with the client's password, which never travels in plain text."""
    sasl = pages.security.sasl
    if sasl is None or not sasl.username or not sasl.password:
        return {}
    if not (pages.uses_tls or _is_loopback(pages.address.host)):
        return {}
    login = f"{sasl.username}:{sasl.password.reveal()}".encode()
    return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
