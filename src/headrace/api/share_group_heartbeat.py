"""ShareGroupHeartbeat: API key 76, version 1.

KIP-932: members of share groups. A heartbeat initializes the states of the partitions that its
group is going to read; members are assigned a partition once that is done. Unlike in Kafka, a
member without partitions gets its response then, not before (`groups.share.holding`). A failure is
logged, and the next heartbeat tries again; a state whose initialization is not heard of is tried
again after `group.share.initialize.retry.interval.ms`.

A state that exists is not initialized again: the group would lose its place. Kafka initializes it
again if it has not heard that it did.

The work is in `groups.share.heartbeat`.
"""

import logging
from collections.abc import Sequence
from functools import partial

from headrace.api.groups import check_share_groups, client_host, parked
from headrace.coordinator.machine import Reply
from headrace.errors import KafkaError
from headrace.groups.heartbeats import Sender
from headrace.groups.share.heartbeat import heartbeat
from headrace.groups.share.states import Beginning, note_begun, note_not_begun
from headrace.ids import SharePartitionKey
from headrace.server.broker import Broker
from headrace.server.gathering import ask_in_turns
from headrace.server.request import LATER, Answer, Request
from headrace.share.durable import NO_LEADER_EPOCH, StateSummary
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

logger = logging.getLogger(__name__)


def handle(broker: Broker, request: Request) -> Answer:
    body: ShareGroupHeartbeatRequest = request.body
    sender = Sender(request.client_id or "", client_host(request.peer.address))

    def answer(response: ShareGroupHeartbeatResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            response = ShareGroupHeartbeatResponse(
                error_code=response.code, error_message=response.message
            )
        request.answer(response)

    def begin(beginnings: Sequence[Beginning] | KafkaError) -> None:
        if not isinstance(beginnings, KafkaError):  # else the log does not have them
            _begin_states(broker, body.group_id, beginnings)

    reply = parked(request, answer)
    try:
        check_share_groups(broker)
        shard = broker.groups.shard(body.group_id)
    except KafkaError as error:
        reply(error)
        return LATER
    shard.write(
        lambda machine, now_ms: heartbeat(machine.state, body, sender, now_ms, reply, begin=begin),
        reply,
    )
    return LATER


def _begin_states(broker: Broker, group_id: str, beginnings: Sequence[Beginning]) -> None:
    """Initialize states, and record those that succeeded."""

    def on_all(answers: list[StateSummary | KafkaError | None]) -> None:
        begun, failed = list[SharePartitionKey](), dict[SharePartitionKey, KafkaError]()
        for each, answer in zip(beginnings, answers, strict=True):
            if isinstance(answer, KafkaError):
                failed[each.key] = answer
            else:
                begun.append(each.key)
        if failed:
            logger.warning(
                "group %s: %d of %d states could not be initialized, to be retried: %s",
                *(group_id, len(failed), len(answers), next(iter(failed.values())).message),
            )
        _note(broker, group_id, begun, list(failed))

    ask_in_turns(beginnings, partial(_begin_state, broker), on_all)


def _begin_state(broker: Broker, beginning: Beginning, reply: Reply[StateSummary | None]) -> None:
    """Begin a state, unless it is there."""
    key, state_epoch, start_offset = beginning

    def on_summary(answer: StateSummary | KafkaError) -> None:
        if isinstance(answer, KafkaError) or answer.state_epoch > 0:
            reply(answer)
        else:
            broker.persister.initialize(key, state_epoch, start_offset, reply)

    broker.persister.read_summary(key, NO_LEADER_EPOCH, on_summary)


def _note(
    broker: Broker,
    group_id: str,
    begun: Sequence[SharePartitionKey],
    failed: Sequence[SharePartitionKey],
) -> None:
    def on_noted(answer: KafkaError | None) -> None:
        if answer is not None:
            logger.warning("group %s: not noted that states began: %s", group_id, answer.message)

    try:
        shard = broker.groups.shard(group_id)
    except KafkaError as error:
        on_noted(error)  # whoever coordinates the group by now finds that the states are there
        return
    if failed:
        shard.write(lambda machine, now_ms: note_not_begun(machine.state, failed, now_ms), on_noted)
    if begun:
        shard.write(
            lambda machine, now_ms: note_begun(machine.state, group_id, begun, now_ms, on_noted),
            on_noted,
        )
