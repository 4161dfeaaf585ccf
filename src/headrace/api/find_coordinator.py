"""FindCoordinator: API key 10, versions 0 to 6.

KIP-98 (transactions, from 1), KIP-699 (many keys at once, from 4), KIP-932 (share partitions, from
6). The first request for a coordinator creates its topic and is answered when the topic is there;
Kafka responds COORDINATOR_NOT_AVAILABLE meanwhile. A request that comes while this node begins to
lead the partition waits a moment too: a client that its coordinator refuses comes back much later.
An empty group id has a coordinator like any other: offsets could always be committed for it. The
key of a share partition is `group:topic id:partition`; any other key, or one before version 6, is
INVALID_REQUEST.

The work is in `coordinator.placement` and `topics.internal`.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from enum import IntEnum
from typing import Any, Final

# Who asks for a coordinator has it made: what that loads is loaded with this module, in a thread.
import headrace.groups.machine  # noqa: F401
from headrace.coordinator.coordinator import Coordinator as Coordinators
from headrace.coordinator.placement import partition_for
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import (
    GROUPS_TOPIC,
    SHARE_STATES_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicName,
    parse_share_partition,
)
from headrace.server.broker import Broker
from headrace.server.gathering import NAMES_AT_ONCE
from headrace.server.reach import Reach
from headrace.server.request import Request
from headrace.topics.internal import create_internal_topic
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import (
    Coordinator,
    FindCoordinatorResponse,
)

FIRST_BATCHED: Final = 4
FIRST_WITH_SHARE: Final = 6
NO_NODE: Final = -1
READY_SECONDS_MAX: Final = 1.0
"""How long to wait for a loading coordinator, from the start of the load: the client can get the
error from the coordinator as well, and its later requests on this connection wait too."""
NO_ERROR: Final = "NONE"
"""Kafka's message in successful responses before batched lookups."""


class KeyType(IntEnum):
    """Kafka's numbers of what is coordinated."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def handle(
    broker: Broker, request: Request
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    topic = _TOPICS.get(request.body.key_type)
    is_large = len(request.body.coordinator_keys) > NAMES_AT_ONCE
    if topic is not None and broker.image.topic(topic) is None:
        if is_large or _has_legal_key(request, 0):
            return _create_and_answer(broker, request, topic)
    elif is_large:
        return _answer_in_slices(broker, request)
    if not _is_ready(broker, request):
        return _answer_when_ready(broker, request)
    return _answer(broker, request)


async def _create_and_answer(
    broker: Broker, request: Request, topic: TopicName
) -> FindCoordinatorResponse:
    for start in range(0, max(len(request.body.coordinator_keys), 1), NAMES_AT_ONCE):
        if _has_legal_key(request, start):
            break
        await asyncio.sleep(0)
    else:
        return await _answer_in_slices(broker, request)
    with contextlib.suppress(KafkaError):  # logged; the answer says that there is nobody
        await create_internal_topic(broker, topic)
    return await _answer_when_ready(broker, request)


async def _answer_when_ready(broker: Broker, request: Request) -> FindCoordinatorResponse:
    """Answer once the coordinators that are here serve, or after `READY_SECONDS_MAX`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_SECONDS_MAX):
            await broker.replicas.settle()
            if len(request.body.coordinator_keys) <= NAMES_AT_ONCE:
                for shard in _shards(broker, request):
                    if shard is not None and _may_serve_soon(shard):
                        await shard.loaded()
    return await _answer_in_slices(broker, request)


def _is_ready(broker: Broker, request: Request) -> bool:
    """Return whether the coordinators on this node are loaded, or take too long to wait for."""
    return all(
        shard is not None and not _may_serve_soon(shard) for shard in _shards(broker, request)
    )


def _may_serve_soon(shard: Shard[Any]) -> bool:
    """Return whether a coordinator is loading, and started recently."""
    now = asyncio.get_running_loop().time()
    return shard.state is State.LOADING and now < shard.loading_since + READY_SECONDS_MAX


def _shards(broker: Broker, request: Request) -> Iterator[Shard[Any] | None]:
    """Yield the shards of the keys that this node coordinates; None for one that it has not yet."""
    coordinators: dict[int, Coordinators[Any]] = {
        KeyType.GROUP: broker.groups,
        KeyType.TRANSACTION: broker.transactions,
        KeyType.SHARE: broker.share_states,
    }
    coordinator = coordinators.get(request.body.key_type)
    topic = None if coordinator is None else broker.image.topic(coordinator.topic)
    if coordinator is None or topic is None:
        return
    for key in _keys(request):
        index = partition_for(key, len(topic.partitions))
        if topic.partitions[index].leader == broker.node_id and _is_legal(request, key):
            yield coordinator.shard_at(index)


async def _answer_in_slices(broker: Broker, request: Request) -> FindCoordinatorResponse:
    """Find many coordinators, with turns for others on the loop in between."""
    keys: list[str] = request.body.coordinator_keys
    if request.version < FIRST_BATCHED or len(keys) <= NAMES_AT_ONCE:
        return _answer(broker, request)
    rows: list[Coordinator] = []
    for start in range(0, len(keys), NAMES_AT_ONCE):
        reach = Reach(broker.image, request.peer.listener)
        some = keys[start : start + NAMES_AT_ONCE]
        rows += [_find(broker, request, key, reach) for key in some]
        await asyncio.sleep(0)
    return FindCoordinatorResponse(coordinators=rows)


def _answer(broker: Broker, request: Request) -> FindCoordinatorResponse:
    body: FindCoordinatorRequest = request.body
    reach = Reach(broker.image, request.peer.listener)
    if request.version >= FIRST_BATCHED:
        return FindCoordinatorResponse(
            coordinators=[_find(broker, request, key, reach) for key in body.coordinator_keys]
        )
    found = _find(broker, request, body.key, reach)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or _MESSAGES.get(found.error_code, NO_ERROR),
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(broker: Broker, request: Request, key: str, reach: Reach) -> Coordinator:
    key_type = request.body.key_type
    topic = _TOPICS.get(key_type)
    if topic is None:
        code = ErrorCode.INVALID_REQUEST
        return _nobody(key, code, f"{key_type} is no type of key: 0 to 2 are")
    if not _is_legal(request, key):
        return _nobody(key, ErrorCode.INVALID_REQUEST)
    found = broker.image.topic(topic)
    if found is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader, code = reach.leader(found.partitions[partition_for(key, len(found.partitions))])
    if code != ErrorCode.NONE:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    endpoint = reach.endpoints[leader]
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, code: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, port=NO_NODE, error_code=code, error_message=message
    )


def _has_legal_key(request: Request, start: int) -> bool:
    """Return whether one of the next `NAMES_AT_ONCE` keys is legal."""
    return any(_is_legal(request, key) for key in _keys(request)[start : start + NAMES_AT_ONCE])


def _keys(request: Request) -> list[str]:
    body: FindCoordinatorRequest = request.body
    return body.coordinator_keys if request.version >= FIRST_BATCHED else [body.key]


def _is_legal(request: Request, key: str) -> bool:
    """Return whether a key is valid for its type: not every text names a share partition."""
    if request.body.key_type != KeyType.SHARE:
        return True
    if request.version < FIRST_WITH_SHARE:
        return False
    try:
        parse_share_partition(key)
    except ValueError:
        return False
    return True


_TOPICS: Final[dict[int, TopicName]] = {
    KeyType.GROUP: GROUPS_TOPIC,
    KeyType.TRANSACTION: TRANSACTIONS_TOPIC,
    KeyType.SHARE: SHARE_STATES_TOPIC,
}
_MESSAGES: Final[dict[int, str]] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "This key has no coordinator that this version can request.",
}
