"""TxnOffsetCommit: API key 28, versions 0 to 5.

KIP-98, KIP-447 (the members of the group are checked, from 3), KIP-890 (the partition of the group
joins the transaction with this request, from 5). The offsets count once the transaction is
committed.

The work is in `groups.offsets.commits`; `txn.verification` asks the coordinator of the transaction.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.api.committed_offsets import OFFSETS_AT_ONCE, OffsetRows, commit_in_slices, sort_out
from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.kinds import Committer
from headrace.groups.offsets.commits import Commit, Refused, commit_offsets
from headrace.loop.slices import Slices, in_slices, run_whole
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from headrace.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.wire.schema import Message

FIRST_WITH_LOADING: Final = 2
"""The version of TxnOffsetCommit from which a producer knows that a coordinator may be loading."""


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: TxnOffsetCommitRequest = request.body
    asked = sort_out(broker.image, body.topics, is_by_id=False)

    def respond(answer: "Refused | KafkaError") -> Slices[TxnOffsetCommitResponse]:
        if isinstance(answer, KafkaError) and request.version < FIRST_WITH_LOADING:
            answer = _before_loading_was_known(answer)
        return TxnOffsetCommitResponse(topics=(yield from _txn_rows(asked, answer)))

    if not asked.existing:
        return in_slices(respond({}))
    if not body.group_id:
        nameless = KafkaError(
            ErrorCode.INVALID_GROUP_ID, "offsets of a transaction need a group id"
        )
        return in_slices(respond(nameless))
    committer = Committer(
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        request.version,
        is_transactional=True,
    )
    commit = Commit(body.group_id, asked.existing, committer)

    def ask(commit: Commit, reply: Reply[Refused]) -> None:
        """Commit offsets in the transaction, verified for each slice: it may end in between."""

        def on_verified(error: KafkaError | None) -> None:
            if error is not None:
                reply(error)
            else:
                write(commit, reply)

        broker.verify_offsets(body, request.version, on_verified)

    def write(commit: Commit, reply: Reply[Refused]) -> None:
        try:
            shard = broker.groups.shard(body.group_id)
        except KafkaError as refused:
            reply(refused)
            return
        shard.write_transactional(
            lambda machine, now_ms: commit_offsets(machine.state, commit, now_ms, reply),
            reply,
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
        )

    if asked.row_count > OFFSETS_AT_ONCE:
        return commit_in_slices(commit, ask, respond)
    ask(commit, lambda answer: request.answer(run_whole(respond(answer))))
    return LATER


def _before_loading_was_known(error: KafkaError) -> KafkaError:
    """Return a code that is not fatal for old producers."""
    if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return error
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)


_txn_rows: Final = OffsetRows(
    lambda name, _, partitions: TxnOffsetCommitResponseTopic(name, partitions),
    TxnOffsetCommitResponsePartition,
)
