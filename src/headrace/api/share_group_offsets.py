"""States of share partitions: deleting them, and what the APIs of share group offsets share."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from headrace.api.groups import group_shard
from headrace.coordinator.machine import Operation, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.share.offsets import (
    KnownTopic,
    begin_group_deletion,
    note_deleted,
)
from headrace.ids import ZERO_TOPIC_ID, SharePartitionKey, TopicId, TopicName
from headrace.server.broker import Broker
from headrace.server.gathering import OperationFor, ask_each, ask_in_turns

Deletions: TypeAlias = dict[str, tuple[TopicId, KafkaError | None]]
"""By topic: its id, and why its states could not be deleted, if they could not."""
Plan: TypeAlias = tuple[
    Callable[[], Shard[GroupsMachine]], OperationFor[list[KnownTopic], GroupsMachine]
]
"""Where a group is, and the operation that finds the topics whose states are to be deleted."""


def topic_id_of(broker: Broker, name: str) -> TopicId:
    topic = broker.image.topic(TopicName(name))
    return ZERO_TOPIC_ID if topic is None else topic.topic_id


def delete_group_states(broker: Broker, group_id: str, reply: Reply[None]) -> None:
    """Delete all states of a group that is about to be deleted; reply None.

    Does nothing for groups of other types. Replies a KafkaError if the group has members, or if
    one of the states could not be deleted: then the group stays.
    """

    def on_done(answer: Deletions | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            reply(answer)
        else:
            reply(next((error for _, error in answer.values() if error is not None), None))

    def plan(reply: Reply[list[KnownTopic]]) -> Operation[GroupsMachine]:
        return lambda machine, now_ms: begin_group_deletion(machine.state, group_id, reply)

    find = partial(broker.groups.shard, group_id, is_served=False)
    delete_states(broker, group_id, (find, plan), on_done, is_group_deleted=True)


def delete_states(
    broker: Broker,
    group_id: str,
    plan: Plan,
    reply: Reply[Deletions],
    *,
    is_group_deleted: bool = False,
) -> None:
    """Delete the states of a plan's topics; reply the outcome of each, by name."""

    def on_planned(answers: list[list[KnownTopic] | KafkaError]) -> None:
        (planned,) = answers
        if isinstance(planned, KafkaError):
            reply(planned)
            return
        keys = [(topic, key) for topic in planned for key in topic.keys(group_id)]

        def on_deleted(answers: list[KafkaError | None]) -> None:
            outcomes: Deletions = {topic.name: (topic.topic_id, None) for topic in planned}
            for (topic, _), answer in zip(keys, answers, strict=True):
                if answer is not None:
                    outcomes[topic.name] = topic.topic_id, answer
            if planned:
                broker.share_partitions.forget_group(group_id)
            if is_group_deleted or not planned:
                reply(outcomes)  # what is known of states goes with the group
                return
            gone = [topic_id for topic_id, error in outcomes.values() if error is None]
            _note(
                broker,
                group_id,
                lambda taken: (
                    lambda machine, now_ms: note_deleted(machine.state, group_id, gone, taken)
                ),
                lambda answer: reply(outcomes if answer is None else answer),
            )

        def delete(place: tuple[KnownTopic, SharePartitionKey], reply: Reply[None]) -> None:
            broker.persister.delete(place[1], reply)

        ask_in_turns(keys, delete, on_deleted)

    ask_each([plan], on_planned)


def _note(
    broker: Broker,
    group_id: str,
    operation: OperationFor[None, GroupsMachine],
    reply: Reply[None],
) -> None:
    """Persist what was done; reply None, or the KafkaError that it failed with."""

    def on_noted(answers: list[KafkaError | None]) -> None:
        reply(answers[0])

    ask_each([(partial(group_shard, broker, group_id), operation)], on_noted)


def unknown_partition(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist, or nothing is known of it"
    )


def code_and_message(error: KafkaError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)
