"""Connections to other nodes of the cluster: one each, opened on demand."""

import asyncio
from collections.abc import Callable
from typing import Any

from headrace import config
from headrace.client.addresses import Address
from headrace.client.connection import Connection, open_connection
from headrace.client.errors import NotReachable
from headrace.client.settings import ClientSettings
from headrace.config import AnySettings
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.wire import APIS
from headrace.wire.schema import Message


class BrokerPeers:
    """Connections to the brokers of the image (`headrace.share.persister.Peers`)."""

    def __init__(self, settings: AnySettings, image_of: Callable[[], Image]) -> None:
        self._listener: str = settings[config.INTER_BROKER_LISTENER_NAME] or ""
        self._client = ClientSettings(
            client_id=f"headrace-node-{settings[config.NODE_ID]}",
            request_timeout_ms=settings[config.REQUEST_TIMEOUT_MS],
        )
        self._image_of = image_of
        self._connections: dict[BrokerId, asyncio.Task[Connection]] = {}

    async def send(self, node_id: BrokerId, request: Message) -> Any:
        """Send a request; raise NotReachable without a response, UnsupportedApi if unsupported."""
        connection = await self._connection(node_id)
        return await connection.request(request, APIS[request.API_KEY].response)

    def close(self) -> None:
        """Close all connections."""
        connections, self._connections = self._connections, {}
        for opening in connections.values():
            if opening.cancel() or opening.cancelled() or opening.exception() is not None:
                continue
            opening.result().close()

    async def _connection(self, node_id: BrokerId) -> Connection:
        """Return the connection to a node; a new one if the node moved or disconnected."""
        address = self._address(node_id)
        opening = self._connections.get(node_id)
        if opening is not None and opening.done() and not _is_usable(opening, address):
            opening = None
        if opening is None:
            opening = asyncio.get_running_loop().create_task(open_connection(address, self._client))
            self._connections[node_id] = opening
        return await asyncio.shield(opening)

    def _address(self, node_id: BrokerId) -> Address:
        broker = self._image_of().broker(node_id)
        if broker is None or broker.is_fenced or not broker.endpoints:
            raise NotReachable(f"node {node_id} is not up")
        named = [each for each in broker.endpoints if each.listener == self._listener]
        endpoint = (named or broker.endpoints)[0]
        return Address(endpoint.host, endpoint.port)


def _is_usable(opening: "asyncio.Task[Connection]", address: Address) -> bool:
    if opening.cancelled() or opening.exception() is not None:
        return False
    connection = opening.result()
    if connection.address == address and connection.is_open:
        return True
    connection.close()
    return False
