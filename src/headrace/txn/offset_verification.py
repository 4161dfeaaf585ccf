"""Verification of transactional offset commits by the transaction coordinator."""

from typing import Protocol

from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest


class OffsetVerifier(Protocol):
    """Asks the coordinator of a transaction about the partition of `__consumer_offsets`."""

    def __call__(self, body: TxnOffsetCommitRequest, version: int, reply: Reply[None], /) -> None:
        """Call `reply` once: with None if the group's partition is part of the transaction.

        From version 5 on it becomes a part (KIP-890). KafkaError as Kafka has it: TRANSACTION_
        ABORTABLE in version 4 and INVALID_TXN_STATE before, if it is none; INVALID_PRODUCER_EPOCH,
        INVALID_PRODUCER_ID_MAPPING and others of the coordinator.
        """


def nobody_coordinates(body: TxnOffsetCommitRequest, version: int, reply: Reply[None], /) -> None:
    """Refuse: a node that coordinates no transactions knows no transactional id."""
    reply(
        KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"nobody coordinates transactional id {body.transactional_id!r}",
        )
    )
