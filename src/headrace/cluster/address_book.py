"""Where the nodes of the cluster are, also before the metadata log can be read.

A node that starts knows its log, but not what of it is committed, and so no address: that takes
other nodes. It finds them at the addresses that it knew last.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from headrace.ids import BrokerId
from headrace.log.disk import Disk

FILE: Final = "cluster-nodes.json"
Address = tuple[str, int]

logger = logging.getLogger(__name__)


def parse_address(text: str) -> Address:
    """Return the host and the port of `HOST:PORT`; ValueError if it is something else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Stored(msgspec.Struct):
    addresses: dict[int, str] = {}
    folders: dict[int, Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})*$")]] = {}


class AddressBook:
    """The node ports of a cluster and the data folders of its nodes, by node id."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._addresses: dict[int, str] = {}
        self._folders: dict[int, str] = {}
        self._saving: asyncio.Future[None] | None = None
        self._is_stale = False
        if disk.exists(FILE):
            try:
                stored = msgspec.json.decode(disk.read(FILE), type=_Stored)
                self._addresses, self._folders = stored.addresses, stored.folders
            except msgspec.MsgspecError as error:  # seeds know them, too
                logger.warning("%s cannot be read, so it is ignored: %s", FILE, error)

    def find(self, node: BrokerId) -> Address | None:
        text = self._addresses.get(node)
        return None if text is None else parse_address(text)

    def text(self, node: BrokerId | None) -> str:
        """Return the address of a node, empty if it is not known."""
        return "" if node is None else self._addresses.get(node, "")

    def is_other_folder(self, node: BrokerId, folder: bytes) -> bool:
        """Return whether a node was last known with another data folder than this."""
        return self._folders.get(node, folder.hex()) != folder.hex()

    @property
    def has_folders(self) -> bool:
        """Whether any data folder is known."""
        return bool(self._folders)

    def folder(self, node: BrokerId) -> bytes | None:
        """Return the data folder that a node was last known with."""
        text = self._folders.get(node)
        return None if text is None else bytes.fromhex(text)

    def put_folders(self, folders: Mapping[int, bytes]) -> None:
        """Replace all data folders that are known."""
        named = {node: folder.hex() for node, folder in folders.items()}
        if self._folders != named:
            self._folders = named
            self._save()

    @property
    def nodes(self) -> Iterable[BrokerId]:
        return map(BrokerId, self._addresses)

    def put(self, addresses: Mapping[int, str]) -> list[BrokerId]:
        """Replace all addresses; return the nodes whose address is another one now."""
        if self._addresses == addresses:
            return []
        before, self._addresses = self._addresses, dict(addresses)
        self._save()
        return [
            BrokerId(node) for node, address in addresses.items() if before.get(node) != address
        ]

    def learn(self, node: BrokerId, address: str) -> bool:
        """Take an address in that was found otherwise; return whether it was not known."""
        if self._addresses.get(node) == address:
            return False
        self._addresses[node] = address
        self._save()
        return True

    def _save(self) -> None:
        """Write the file in a thread, once more if there is a change meanwhile."""
        self._is_stale = True
        if self._saving is None:
            self._write()

    def _write(self) -> None:
        self._is_stale = False
        data = msgspec.json.encode(_Stored(self._addresses, self._folders))
        loop = asyncio.get_running_loop()
        self._saving = loop.run_in_executor(None, self._disk.replace, FILE, data)
        self._saving.add_done_callback(self._note_written)

    def _note_written(self, saving: "asyncio.Future[None]") -> None:
        self._saving = None
        if not saving.cancelled() and (error := saving.exception()) is not None:
            logger.warning("%s could not be written: %s", FILE, error)
        elif self._is_stale:
            self._write()

    async def close(self) -> None:
        """Return when nothing is being written any more."""
        while self._saving is not None:
            await asyncio.wait([self._saving])
