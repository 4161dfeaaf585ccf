"""Describing groups of the protocols that the broker leads: consumer, share and streams groups."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import ask_each
from headrace.broker.handlers.operations import GROUP_OPERATIONS
from headrace.broker.request import LATER, Answer, Request
from headrace.coordinator.machine import Operation, Outcome, Reply
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
) -> Answer:
    """Answer with a row for each group, in the order in which they were asked for.

    `refused` gives the row of a group that cannot be described, by code, message and name.
    """
    body = request.body

    def on_all(answers: list[Any]) -> None:
        for position, answer in enumerate(answers):
            if isinstance(answer, KafkaError):
                answers[position] = refused(answer.code, answer.message, body.group_ids[position])
            elif body.include_authorized_operations:
                answer.authorized_operations = GROUP_OPERATIONS
        request.answer(response(groups=answers))

    def operation(group_id: str, reply: Reply) -> Operation:
        return lambda machine, now_ms: describe(machine.state, group_id, reply)

    asked = [
        (partial(group_shard, broker, each), partial(operation, each)) for each in body.group_ids
    ]
    ask_each(asked, on_all)
    return LATER


def group_shard(broker: Broker, group_id: str) -> Shard[GroupsMachine]:
    """Give the shard of a group; INVALID_GROUP_ID if it has no name."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group without a name")
    return broker.groups.shard(group_id)
