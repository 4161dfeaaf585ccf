"""What the APIs of groups share: shards of groups, requests that wait, descriptions."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from headrace import config
from headrace.coordinator.machine import OnError, Outcome, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.state import GroupsState
from headrace.metadata.features import SHARE_VERSION, STREAMS_VERSION
from headrace.server.broker import Broker
from headrace.server.gathering import answer_each, ask_shard
from headrace.server.operations import GROUP_OPERATIONS
from headrace.server.request import LATER, Answer, Request
from headrace.wire.schema import Message

A = TypeVar("A")
OnState: TypeAlias = Callable[[GroupsState, int], Outcome]
"""An operation, as a function of the state of the machine."""
D = TypeVar("D", bound="Described")


def parked(request: Request, answer: Reply[A]) -> Reply[A]:
    """Return the reply of a request that a coordinator may keep waiting.

    A node that stops responds to it, and a later reply of the coordinator is dropped.
    """
    is_answered = False

    def reply(response: A | KafkaError) -> None:
        nonlocal is_answered
        if not is_answered:
            answer(response)
            is_answered = True

    def on_drain() -> None:
        reply(KafkaError(ErrorCode.NOT_COORDINATOR, "this node stops"))

    request.on_drain = on_drain
    return reply


def client_host(address: str) -> str:
    """Return where a member is, as Kafka's tools show it: an address in Java's form, no port."""
    return "/" + address.rpartition(":")[0].strip("[]")


def write_to_group(broker: Broker, group_id: str, operation: OnState, on_error: OnError) -> Answer:
    """Do an operation where the group is coordinated, or tell `on_error` why not."""

    def on_machine(machine: GroupsMachine, now_ms: int) -> Outcome:
        return operation(machine.state, now_ms)

    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "an empty group id")
        shard = broker.groups.shard(group_id)
    except KafkaError as error:
        on_error(error)
        return LATER
    shard.write(on_machine, on_error)
    return LATER


class Described(Protocol):
    """The row of a group, whatever its kind."""

    authorized_operations: int


Describe: TypeAlias = Callable[[GroupsState, str, Reply[D]], Outcome]
"""Answers with the row of a group; KafkaError if it is not there or of another protocol."""


def answer_descriptions(
    broker: Broker,
    request: Request,
    describe: Describe[D],
    refused: Callable[[int, str, str], D],
    response: Callable[..., Message],
) -> Answer | Coroutine[Any, Any, Message]:
    """Respond with a row for each group, in the order of the request.

    `refused` returns the row of a group that cannot be described, by code, message and name.
    """
    body = request.body

    def ask(group_id: str, reply: Reply[D]) -> None:
        ask_shard(
            partial(group_shard, broker, group_id),
            lambda reply: lambda machine, _: describe(machine.state, group_id, reply),
            reply,
        )

    def row(group_id: str, answer: D | KafkaError) -> D:
        if isinstance(answer, KafkaError):
            return refused(answer.code, answer.message, group_id)
        if body.include_authorized_operations:
            answer.authorized_operations = GROUP_OPERATIONS
        return answer

    return answer_each(request, body.group_ids, ask, row, lambda rows: response(groups=rows))


def group_shard(broker: Broker, group_id: str) -> Shard[GroupsMachine]:
    """Return the shard of a group; INVALID_GROUP_ID if it has no name."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group without a name")
    return broker.groups.shard(group_id)


def check_share_groups(broker: Broker) -> None:
    """Raise UNSUPPORTED_VERSION if share groups are turned off."""
    protocols = broker.settings[config.GROUP_COORDINATOR_REBALANCE_PROTOCOLS]
    if "share" not in protocols and not broker.image.feature_level(SHARE_VERSION):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"share groups are turned off: the feature {SHARE_VERSION} has to be at 1",
        )


def check_streams_groups(broker: Broker) -> None:
    """Raise UNSUPPORTED_VERSION if streams groups are turned off."""
    protocols = broker.settings[config.GROUP_COORDINATOR_REBALANCE_PROTOCOLS]
    if "streams" not in protocols or not broker.image.feature_level(STREAMS_VERSION):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "streams groups are turned off: group.coordinator.rebalance.protocols has to name "
            f"streams, and the feature {STREAMS_VERSION} to be at 1",
        )
