"""The quotas of a node: taken from the metadata log, enforced where there are any.

    quotas = NodeQuotas(live, counters, traffic)
    quotas.take(image)                  # all of them, from a snapshot: in slices
    quotas.note(image, entity)          # one that an entry has changed
    quotas.attach(dispatcher, listeners, node_listener)

Requests are metered, and connections paced, only while the image or the settings have a limit.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from headrace import config
from headrace.config import LiveSettings, Settings
from headrace.loop.counters import Counters
from headrace.loop.slices import Slice, Slices, finish, in_slices
from headrace.loop.tasks import Tasks
from headrace.metadata.image import Image
from headrace.metadata.state import QuotaEntity
from headrace.security.principals import ANONYMOUS, NODE
from headrace.security.quotas.connections import NODE as WHOLE_NODE
from headrace.security.quotas.connections import (
    AddressLimits,
    ConnectionRates,
    limit_of_address,
)
from headrace.security.quotas.limits import ClientLimits
from headrace.security.quotas.meters import ClientQuotas
from headrace.security.quotas.rates import Windows
from headrace.server.connection import plain_host
from headrace.server.connection_pace import ConnectionPace
from headrace.server.dispatch import Dispatcher
from headrace.server.metering import Metering, claims_a_node
from headrace.server.request import Request
from headrace.server.traffic import Traffic

ENTITY_UNITS: Final = 2
"""What taking the limits of an entity costs, in units of a slice."""
ADDRESS_UNITS: Final = 20
"""The same of an address, which is parsed."""
_NO_LIMITS: Final[Mapping[str, float]] = {}


class NodeQuotas:
    """What limits the clients of a node."""

    def __init__(self, live: LiveSettings, counters: Counters, traffic: Traffic) -> None:
        settings = live.at_start
        windows = _windows(
            settings[config.QUOTA_WINDOW_NUM], settings[config.QUOTA_WINDOW_SIZE_SECONDS]
        )
        token_windows = _windows(
            settings[config.CONTROLLER_QUOTA_WINDOW_NUM],
            settings[config.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS],
        )
        clients_max = settings[config.QUOTA_CLIENTS_MAX]
        self.clients = ClientQuotas(windows, token_windows, clients_max=clients_max)
        self.connections = ConnectionRates(windows, addresses_max=clients_max)
        self._live = live
        self._counters = counters
        self._traffic = traffic
        self._metering = Metering(self.clients, counters, loop_ms, self._exempts)
        self._node_listener: str | None = None
        self._listeners: tuple[str, ...] = ()
        self._pace: ConnectionPace | None = None
        self._dispatcher: Dispatcher | None = None
        self._tasks = Tasks()
        self._taking: asyncio.Task[None] | None = None
        self._late: dict[QuotaEntity, Mapping[str, float]] | None = None
        """What has changed since all quotas of an image began to be taken."""

    def attach(
        self, dispatcher: Dispatcher, listeners: Iterable[str], node_listener: str | None
    ) -> None:
        """Enforce the quotas from now on. `node_listener` is the one for nodes only, if any."""
        self._dispatcher = dispatcher
        self._listeners = tuple(listeners)
        self._node_listener = node_listener
        exempt = frozenset(() if node_listener is None else (node_listener,))
        self._pace = ConnectionPace(self.connections, self._counters, loop_ms, exempt)
        self.limit_listeners()

    def take(self, image: Image) -> None:
        """Take all quotas of an image. Few hold at once, and very many when `settle` returns.

        Until then those from before hold, with what `note` has heard since.
        """
        self.stop()
        work = in_slices(self._take(image))
        if work is not None:
            self._taking = self._tasks.start(work)

    async def settle(self) -> None:
        """Return when the quotas of the image hold that was taken last."""
        while self._taking is not None and not self._taking.done():
            await asyncio.wait({self._taking})

    def stop(self) -> None:
        """Take no more quotas of an image."""
        self._tasks.cancel()
        self._taking = self._late = None

    def note(self, image: Image, entity: QuotaEntity) -> None:
        """Take the quotas of one entity, which have changed."""
        limits = image.quotas(entity)
        if self._late is not None:
            self._late[entity] = limits
        self.clients.change(entity, limits)
        if (found := _limit_of_address(entity, limits)) is not None:
            self.connections.change(*found)
        self._switch()

    def limit_listeners(self) -> None:
        """Take the limits of connections from the settings."""
        setting = config.MAX_CONNECTION_CREATION_RATE
        settings: Settings = self._live.now
        own = {name: _own_rate(settings, name) for name in self._listeners}
        self.connections.limit_listeners({WHOLE_NODE: settings[setting], **own})
        self._switch()

    async def expire(self) -> int:
        """Forget what was used long ago; return how many meters that were."""
        now_ms = loop_ms()
        await finish(self.connections.expire(now_ms))
        return await finish(self.clients.expire(now_ms))

    def _take(self, image: Image) -> Slices[None]:
        """Make the limits of an image beside those that hold, then let them hold."""
        clients, addresses = ClientLimits(), AddressLimits()
        late: dict[QuotaEntity, Mapping[str, float]] = {}
        self._late = late
        current = Slice()
        quotas = image.state.quotas
        for entity in tuple(quotas):  # entities come and go between the slices
            if current.spend(_add(clients, addresses, entity, quotas.get(entity, _NO_LIMITS))):
                yield
        while late:
            if current.spend(_add(clients, addresses, *late.popitem())):
                yield
        self.clients.replace(clients)
        self.connections.replace(addresses)
        self._late = None
        self._switch()

    def _switch(self) -> None:
        if self._dispatcher is None:
            return
        metered = partial(self._metering.handle, self._dispatcher.handle)
        self._dispatcher.meter(metered if self.clients.is_active else None)
        self._traffic.pace = self._pace if self.connections.is_active else None

    def _exempts(self, request: Request) -> bool:
        """Return whether a request is another node's.

        Where nodes authenticate, that is known, and a user who has authenticated is no node. Where
        nobody does, a request is believed, as it is where quotas are looked up by client ids.
        """
        principal = request.peer.principal
        if self._node_listener is not None or principal != ANONYMOUS:
            return principal == NODE
        return claims_a_node(request)


def _limit_of_address(
    entity: QuotaEntity, limits: Mapping[str, float]
) -> tuple[str | None, float | None] | None:
    """Return the address of an entity, as connections have it, and its limit; None for clients."""
    found = limit_of_address(entity, limits)
    if found is None or found[0] is None:
        return found
    return plain_host(found[0]), found[1]


def _add(
    clients: ClientLimits,
    addresses: AddressLimits,
    entity: QuotaEntity,
    limits: Mapping[str, float],
) -> int:
    """Put the limits of an entity where they belong; return what that cost, in units."""
    found = _limit_of_address(entity, limits)
    if found is None:
        clients.change(entity, limits)
        return ENTITY_UNITS
    addresses.change(*found)
    return ADDRESS_UNITS


def loop_ms() -> int:
    """Return the time of the loop, which never goes back."""
    return int(asyncio.get_running_loop().time() * 1000)


def _own_rate(settings: Settings, listener: str) -> int:
    """Return the limit of a listener itself: that of the node is not each listener's."""
    setting = config.MAX_CONNECTION_CREATION_RATE
    own = settings.for_listener(listener, setting)
    name = f"listener.name.{listener.lower()}.{setting.name}"
    return own if name in settings.given else setting.default


def _windows(count: int, seconds: int) -> Windows:
    return Windows(count, seconds * 1000)
