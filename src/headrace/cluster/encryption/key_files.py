"""The files of a node's keys, in its data folder and readable for nobody else.

    node-tls.json      the key and the certificate of this node, and the CAs that it trusts
    cluster-ca.json    the keys of CAs, on nodes that vote or have voted

Each is written whole, so a crash leaves the old one or the new one. Writing waits for the disk, so
a node that serves does it in a thread (`in_thread`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.log.disk import Disk
from headrace.security.node_certificates import Authority, BadCertificate, key_pem, read_key

NODE_FILE: Final = "node-tls.json"
AUTHORITY_FILE: Final = "cluster-ca.json"


class KeyFileUnreadable(HeadraceError):
    """A file of keys that is not what this module has written."""


class NodeFile(msgspec.Struct, frozen=True):
    """What a node keeps of its certificate."""

    key: str
    """PEM."""
    certificate: bytes
    trusted: tuple[bytes, ...]
    """The CAs that the node has heard of last: it meets others before its metadata log is read."""

    def __repr__(self) -> str:
        return "NodeFile(hidden)"


class _KeptAuthority(msgspec.Struct, frozen=True):
    key: str
    certificate: bytes

    def __repr__(self) -> str:
        return "_KeptAuthority(hidden)"


def is_encrypted(disk: Disk) -> bool:
    """Return whether the node of a data folder has spoken TLS to others."""
    return disk.exists(NODE_FILE)


def load_node(disk: Disk) -> NodeFile | None:
    """Return what was stored, None if nothing was; KeyFileUnreadable if it is damaged."""
    if not disk.exists(NODE_FILE):
        return None
    try:
        return msgspec.json.decode(disk.read(NODE_FILE), type=NodeFile)
    except msgspec.MsgspecError as error:
        raise unreadable(NODE_FILE, str(error)) from None


def store_node(disk: Disk, file: NodeFile) -> None:
    disk.replace(NODE_FILE, msgspec.json.encode(file), is_private=True)


async def in_thread(store: Callable[[], None]) -> None:
    """Run what stores a file in a thread; return when it is stored, or raise its OSError.

    A cancellation waits for the thread, as two of them must not write the same file.
    """
    storing = asyncio.get_running_loop().run_in_executor(None, store)
    try:
        await asyncio.shield(storing)
    except asyncio.CancelledError:
        await asyncio.wait({storing})
        raise


def load_authorities(disk: Disk) -> tuple[Authority, ...]:
    """Return the CAs whose keys are here; KeyFileUnreadable if the file is damaged."""
    if not disk.exists(AUTHORITY_FILE):
        return ()
    try:
        kept = msgspec.json.decode(disk.read(AUTHORITY_FILE), type=list[_KeptAuthority])
        return tuple(Authority(read_key(each.key), each.certificate) for each in kept)
    except (msgspec.MsgspecError, BadCertificate) as error:
        raise unreadable(AUTHORITY_FILE, str(error)) from None


def store_authorities(disk: Disk, authorities: tuple[Authority, ...]) -> None:
    kept = [_KeptAuthority(key_pem(each.key), each.certificate) for each in authorities]
    disk.replace(AUTHORITY_FILE, msgspec.json.encode(kept), is_private=True)


def unreadable(name: str, why: str) -> KeyFileUnreadable:
    """Return what to say of a damaged file."""
    return KeyFileUnreadable(
        f"{name} of the data directory cannot be read: {why}; restore it, or remove it and let the "
        "node have another certificate with a join token (docs/security.md)"
    )
