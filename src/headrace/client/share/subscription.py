"""Topics that a member names and that may not exist: waited for, or warned of."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.retrying import Retries
from headrace.errors import ErrorCode, KafkaError

_LOGGER = logging.getLogger(__name__)
_WARNING_SECONDS_MAX: Final = 60.0
"""The longest pause between two warnings; the first comes after the settings' `topic_wait_ms`."""
_MAY_STILL_COME: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)


async def find_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """Wait for topics that do not exist yet, as long as the settings' `topic_wait_ms` says.

    KafkaError names those that stay away, or that are not for us.
    """
    names, timeout_ms = list(names), cluster.settings.topic_wait_ms
    retries = Retries(cluster.settings, timeout_ms)
    while True:
        refused = await _refused(cluster, names)
        for why in refused.values():
            if why.code not in _MAY_STILL_COME:
                raise why
        if not refused:
            return
        if not await retries.pause():
            missing = " and no topic ".join(map(repr, refused))
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {missing}, nor did it appear within {timeout_ms} ms",
            )


async def warn_of_missing(cluster: Cluster, group: str, names: Callable[[], Sequence[str]]) -> None:
    """Log a warning again and again while one of the topics does not exist."""
    pause = cluster.settings.topic_wait_ms / 1000
    while True:
        await asyncio.sleep(pause)
        refused: dict[str, KafkaError] = {}
        with suppress(ClientError):
            refused = await _refused(cluster, names())
            if not refused:
                return
        for name, why in refused.items():
            _LOGGER.warning("group %r gets no records of topic %r: %s", group, name, why)
        pause = min(pause * 2, _WARNING_SECONDS_MAX)


async def _refused(cluster: Cluster, names: Sequence[str]) -> dict[str, KafkaError]:
    await cluster.refresh(names)
    refusals = cluster.view.refusals
    return {name: refusals[name] for name in names if name in refusals}
