"""A dedicated connection to the coordinator of a group.

Brokers handle the requests of a connection in order: a heartbeat after a fetch that waits for
records would be late.
"""

import asyncio
from contextlib import suppress
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection, open_connection
from headrace.client.coordinators import CoordinatorType, find_coordinator
from headrace.client.errors import ClientError, NotReachable
from headrace.wire.schema import Message

M = TypeVar("M", bound=Message)


class CoordinatorLink:
    """Finds the coordinator and connects on first use, and again after `forget`."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self._connection: Connection | None = None
        self._node_id: int | None = None
        """The coordinator that was found last."""
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def connection(self) -> Connection:
        """Return the connection; KafkaError or NotReachable says why there is none."""
        async with self._opening:
            if self._is_closed:
                raise NotReachable("this consumer is closed")
            if self._connection is None or not self._connection.is_open:
                self._connection = None
                self._connection = await self._open()
            return self._connection

    async def request(self, body: Message, answer_type: type[M], *, patience_ms: int = 0) -> M:
        """Send a request in the newest version, and return its response."""
        connection = await self.connection()
        return await connection.request(body, answer_type, patience_ms=patience_ms)

    async def _open(self) -> Connection:
        node_id = self._node_id = await find_coordinator(
            self.cluster, CoordinatorType.GROUP, self.group_id, former=self._node_id
        )
        node = self.cluster.view.nodes.get(node_id)
        if node is None:
            await self.cluster.refresh()
            node = self.cluster.view.nodes.get(node_id)
        if node is None:
            raise NotReachable(f"node {node_id}, which coordinates {self.group_id!r}, is not there")
        try:
            return await open_connection(node.address, self.cluster.settings)
        except NotReachable:
            with suppress(ClientError):
                await self.cluster.refresh()
            raise

    def forget(self) -> None:
        """Look for the coordinator again before the next request, and do not ask this one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._is_closed = True
        self.forget()
