"""Where a record goes that a group is done with, as far as a client can know.

A broker gives a record up when it is rejected, or released in the last delivery that the group's
`share.delivery.count.limit` allows. It goes to the group's dead letters (KIP-1191), or is archived.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.configs import (
    Change,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from headrace.errors import HeadraceError

_LOGGER = logging.getLogger(__name__)
_LIMIT: Final = "share.delivery.count.limit"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_RESET: Final = "share.auto.offset.reset"
_AGE_SECONDS_MAX: Final = 30.0
_READ_SECONDS_MAX: Final = 2.0
_RETRY_SECONDS: Final = 5.0


class Terms(NamedTuple):
    """What is known of a group's configs."""

    delivery_limit: int | None = None
    """None if unknown."""
    dead_letters: str | None = None
    """The group's dead-letter topic; empty if it has none, None if unknown."""

    def is_last(self, delivery_count: int) -> bool:
        """Return whether a record is given up if this delivery of it does not end well."""
        return self.delivery_limit is not None and delivery_count >= self.delivery_limit

    def of_deliveries(self, delivery_count: int) -> str:
        """Return text with the number of the delivery, and the limit if known."""
        limit = "" if self.delivery_limit is None else f" of {self.delivery_limit}"
        return f"delivery {delivery_count}{limit}"

    @property
    def destination(self) -> str:
        """Return text with where a given-up record goes."""
        if self.dead_letters:
            return f"it goes to the dead letters in {self.dead_letters!r}"
        if self.dead_letters is None:
            return "it is archived, or goes to the group's dead letters if it has any"
        return "it is archived, as the group has no dead-letter topic"


class Fate:
    """The configs of one group, read when they are needed and kept for a while."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.terms = Terms()
        """What was read last."""
        self._cluster = cluster
        self._resource = Resource(ResourceType.GROUP, group)
        self._read_at: float | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> Terms:
        """Return the terms, read again if they are old; the old ones if that fails."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._read_at is not None and now < self._read_at + _AGE_SECONDS_MAX:
                return self.terms
            self._read_at = now
            try:
                async with asyncio.timeout(_READ_SECONDS_MAX):
                    self.terms = await self._read()
            except (HeadraceError, TimeoutError) as error:
                _LOGGER.debug("the configs of %s are not known: %s", self._resource, error)
                self._read_at = now - _AGE_SECONDS_MAX + _RETRY_SECONDS
        return self.terms

    async def _read(self) -> Terms:
        outcomes = await describe_configs(
            self._cluster, [self._resource], names=[_LIMIT, _DEAD_LETTERS]
        )
        configs = outcomes[self._resource]
        if isinstance(configs, HeadraceError):
            raise configs
        values = {config.name: config.value or "" for config in configs}
        limit = values.get(_LIMIT, "")
        # A broker without the config has no dead letters.
        return Terms(int(limit) if limit.isdecimal() else None, values.get(_DEAD_LETTERS, ""))


async def set_start(cluster: Cluster, group: str, start: str) -> None:
    """Set where a new group starts; raise KafkaError if that is not allowed."""
    resource = Resource(ResourceType.GROUP, group)
    described = (await describe_configs(cluster, [resource], names=[_RESET])).get(resource)
    if isinstance(described, list) and any(config.value == start for config in described):
        return
    outcome = (await alter_configs(cluster, {resource: [(Change.SET, _RESET, start)]}))[resource]
    if outcome is not None:
        raise outcome
