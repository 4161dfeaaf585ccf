"""Describing groups of the protocols that the broker leads: consumer, share and streams groups."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import answer_each, ask_shard
from headrace.broker.handlers.operations import GROUP_OPERATIONS
from headrace.broker.request import Answer, Request
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.state import GroupsState
from headrace.wire.schema import Message

Describe: TypeAlias = Callable[[GroupsState, str, Reply], Outcome]
"""Answers with the row of a group; KafkaError if it is not there or of another protocol."""


def answer_descriptions(
    broker: Broker,
    request: Request,
    describe: Describe,
    refused: Callable[[int, str, str], Any],
    response: Callable[..., Message],
) -> Answer | Coroutine[Any, Any, Message]:
    """Answer with a row for each group, in the order in which they were asked for.

    `refused` gives the row of a group that cannot be described, by code, message and name.
    """
    body = request.body

    def ask(group_id: str, reply: Reply) -> None:
        ask_shard(
            partial(group_shard, broker, group_id),
            lambda reply: lambda machine, _: describe(machine.state, group_id, reply),
            reply,
        )

    def row(group_id: str, answer: Any) -> Any:
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
