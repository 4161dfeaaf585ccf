"""OffsetCommit: API key 8, versions 2 to 10.

KIP-320 (leader epochs, from 6), KIP-345 (static members, from 7), KIP-848 (members of consumer
groups, from 9), KIP-516 (topic ids, from 10). The client sets the retention up to 4, the broker
afterwards. Topics and partitions have to exist. A commit without a generation comes from a tool, or
from a consumer that assigns partitions for itself.

The work is in `groups.offsets.commits`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.api.committed_offsets import OFFSETS_AT_ONCE, OffsetRows, commit_in_slices, sort_out
from headrace.coordinator.machine import Reply
from headrace.errors import KafkaError
from headrace.groups.kinds import Committer
from headrace.groups.offsets.commits import Commit, Refused, commit_offsets
from headrace.loop.slices import Slices, in_slices, run_whole
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.schema import Message

FIRST_BY_ID: Final = 10


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: OffsetCommitRequest = request.body
    asked = sort_out(broker.image, body.topics, is_by_id=request.version >= FIRST_BY_ID)

    def respond(answer: "Refused | KafkaError") -> Slices[OffsetCommitResponse]:
        return OffsetCommitResponse(topics=(yield from _offset_rows(asked, answer)))

    if not asked.existing:
        return in_slices(respond({}))
    committer = Committer(
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        request.version,
    )
    commit = Commit(body.group_id, asked.existing, committer, body.retention_time_ms)

    def ask(commit: Commit, reply: Reply[Refused]) -> None:
        try:
            shard = broker.groups.shard(body.group_id)
        except KafkaError as error:
            reply(error)
            return
        shard.write(
            lambda machine, now_ms: commit_offsets(machine.state, commit, now_ms, reply), reply
        )

    if asked.row_count > OFFSETS_AT_ONCE:
        return commit_in_slices(commit, ask, respond)
    ask(commit, lambda answer: request.answer(run_whole(respond(answer))))
    return LATER


_offset_rows: Final = OffsetRows(OffsetCommitResponseTopic, OffsetCommitResponsePartition)
