"""Requests to the coordinator of a group or of a transactional id."""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

from headrace.client.cluster import ANY_NODE, Cluster
from headrace.client.errors import NotReachable, refusal
from headrace.client.retrying import Retries
from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.schema import Message

M = TypeVar("M", bound=Message)

_MANY_KEYS_FROM: Final = 4


class CoordinatorType(IntEnum):
    """What is coordinated."""

    GROUP = 0
    TRANSACTION = 1


async def find_coordinator(
    cluster: Cluster, kind: CoordinatorType, key: str, *, former: int | None = None
) -> int:
    """Return the coordinator of a group or a transactional id; raise KafkaError if none.

    `former` has failed as the coordinator, and is not asked unless it is the only node: cut off
    from the others, it would name itself.
    """
    retries = Retries(cluster.settings)
    if former is not None:
        cluster.doubt(former)
    while True:
        try:
            connection = await cluster.connection(ANY_NODE)
            version = connection.version_of(ApiKey.FIND_COORDINATOR)
            body = FindCoordinatorRequest(key_type=kind)
            if version >= _MANY_KEYS_FROM:
                body.coordinator_keys = [key]
            else:
                body.key = key
            # Of this very node: the next that is chosen may be the one that is doubted.
            answer = await connection.request(body, FindCoordinatorResponse, version=version)
        except NotReachable:
            if cluster.is_closed or not await retries.pause():
                raise
            cluster.doubt()
            continue
        row = answer.coordinators[0] if version >= _MANY_KEYS_FROM else answer
        if row.error_code == ErrorCode.NONE:
            return row.node_id
        error = refusal(row.error_code, row.error_message, f"the coordinator of {key!r}")
        if not error.is_retriable or not await retries.pause():
            raise error
        cluster.doubt()


async def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorType,
    key: str,
    body: Message,
    answer_type: type[M],
    *,
    code_of: Callable[[M], int],
    version_max: int | None = None,
) -> M:
    """Send a request to the coordinator of `key` and return its response.

    While the coordinator moves, loads or is busy with a transaction, the request is retried, up to
    the API timeout. `version_max` bounds the version if a newer one needs fields that the caller
    does not have.
    """
    retries = Retries(cluster.settings)
    former: int | None = None
    while True:
        try:
            former = node_id = await find_coordinator(cluster, kind, key, former=former)
            connection = await cluster.connection(node_id)
            version = connection.version_of(ApiKey(body.API_KEY))
            if version_max is not None:
                version = min(version, version_max)
            answer = await connection.request(body, answer_type, version=version)
        except NotReachable:
            if not await retries.pause():
                raise
            cluster.doubt()
            await cluster.refresh()
            continue
        code = code_of(answer)
        if code == ErrorCode.NONE or not refusal(code, None, "").is_retriable:
            return answer
        if not await retries.pause():
            return answer
