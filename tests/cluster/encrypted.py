"""Clusters whose nodes speak TLS to each other, and what attackers of them would have."""

import asyncio
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.cluster.encryption.key_files import load_node, store_node
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.ids import BrokerId
from headrace.log.real_disk import RealDisk
from headrace.node.node import Node
from headrace.security.node_certificates import (
    Authority,
    Validity,
    key_pem,
    make_authority,
    make_request,
    new_key,
    node_of,
    pem_of,
    read_key,
    sign,
    sign_itself,
    valid_for,
)
from headrace.security.node_names import NodeName

SECRET = b"0123456789abcdef0123456789abcdef"
DAY = timedelta(days=1)


def now() -> datetime:
    return datetime.now(UTC)


def encrypted(folder: Path, **more: str) -> dict[str, str]:
    """Return the settings of nodes that speak TLS on loopback."""
    secret = folder / "secret"
    secret.write_bytes(SECRET)
    return {
        "headrace.node.tls": "true",
        "headrace.cluster.secret.file": str(secret),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def authority_of(node: Node) -> Authority:
    """Return the CA of a node that votes, as somebody would have it who stole its key."""
    keys = node.cluster._keys
    assert keys is not None
    newest = keys.newest()
    assert newest is not None
    return newest


def forge(
    folder: Path,
    name: NodeName,
    signer: Authority,
    trusted: tuple[bytes, ...],
    validity: Validity | None = None,
) -> NodeTls:
    """Return what a node brings to connections that has a certificate of a CA."""
    disk = RealDisk(folder)
    tls = NodeTls(disk, name, (), lambda: int(now().timestamp() * 1000))
    certificate = sign(tls.request(), name, signer, validity or valid_for(30, now()))
    tls._key, tls._certificate, tls._trusted = tls._requested, certificate, trusted  # type: ignore[assignment]
    tls._make_contexts()
    return tls


def age(folder: Path, signer: Authority, validity: Validity) -> None:
    """Give a node that does not run a certificate with another time."""
    disk = RealDisk(folder)
    stored = load_node(disk)
    assert stored is not None
    name = node_of(stored.certificate)
    assert name is not None
    request = make_request(read_key(stored.key))
    made = sign(request, name, signer, validity)
    store_node(disk, type(stored)(stored.key, made, stored.trusted))


def stranger(node: int, folder_id: bytes, tls: NodeTls | None, cluster_id: str = "") -> Links:
    """Return the links of a program that knows the secret and says that it is a node."""
    identity = Identity(BrokerId(node), folder_id, 1, cluster_id)
    return Links(identity, secret=SECRET, address_of=lambda node: None, tls=tls)


class ManInTheMiddle:
    """A TLS proxy before a node port, with a certificate of its own; it reads all that passes."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.seen = bytearray()
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        key = new_key()
        own = sign_itself(key, NodeName(1, b"m" * 16), now())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(key_pem(key) + pem_of(own))
            file.flush()
            self._context.load_cert_chain(file.name)

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        try:
            onward = await asyncio.open_connection(*self._target, ssl=anybody)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, onward[1]]
        await asyncio.gather(self._pump(reader, onward[1]), self._pump(onward[0], writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.seen += data
                writer.write(data)
            writer.close()
        except OSError:
            writer.transport.abort()


def another_authority() -> Authority:
    return make_authority(now())
