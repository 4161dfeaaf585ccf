"""OffsetCommit, versions 2 to 10, and TxnOffsetCommit, versions 0 to 5.

OffsetCommit: KIP-320 (leader epochs, from 6), KIP-345 (static members, from 7), KIP-848 (members of
consumer groups, from 9), KIP-516 (topic ids, from 10). Retention is the client's up to 4, and the
broker's from then on. Topics and partitions have to exist. Without a generation it is a tool, or a
consumer that assigns partitions for itself.

TxnOffsetCommit: KIP-98, KIP-447 (the group's members are checked, from 3), KIP-890 (from 5 the
partition of the group joins the transaction by this very request). What is committed counts when
the transaction is.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import ask_in_slices
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.broker.slices import Slice, Slices, finish, in_slices, run_whole
from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.kinds import Committer
from headrace.groups.offsets.commits import Commit, Refused, TopicOffsets, commit_offsets
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Topic
from headrace.wire import ApiKey
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from headrace.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.wire.schema import Message

M = TypeVar("M", bound=Message)

OFFSETS_AT_ONCE: Final = 500
"""How many offsets are committed in one turn of the loop."""
FIRST_BY_ID: Final = 10
FIRST_WITH_LOADING: Final = 2
"""The version of TxnOffsetCommit from which a producer knows that a coordinator may be loading."""


def handle_offset_commit(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: OffsetCommitRequest = request.body
    asked = _sort_out(broker.image, body.topics, is_by_id=request.version >= FIRST_BY_ID)

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

    def ask(commit: Commit, reply: Reply) -> None:
        try:
            shard = broker.groups.shard(body.group_id)
        except KafkaError as error:
            reply(error)
            return
        shard.write(
            lambda machine, now_ms: commit_offsets(machine.state, commit, now_ms, reply), reply
        )

    if asked.row_count > OFFSETS_AT_ONCE:
        return _commit_in_slices(commit, ask, respond)
    ask(commit, lambda answer: request.answer(run_whole(respond(answer))))
    return LATER


def handle_txn_offset_commit(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
    body: TxnOffsetCommitRequest = request.body
    asked = _sort_out(broker.image, body.topics, is_by_id=False)

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

    def ask(commit: Commit, reply: Reply) -> None:
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

    def reply(answer: "Refused | KafkaError") -> None:
        request.answer(run_whole(respond(answer)))

    def on_verified(error: KafkaError | None) -> None:
        if error is not None:
            reply(error)
        else:
            ask(commit, reply)

    async def commit_many() -> TxnOffsetCommitResponse:
        (error,) = await ask_in_slices(
            [body], lambda body, reply: broker.verify_offsets(body, request.version, reply)
        )
        if error is not None:
            return await finish(respond(error))
        return await _commit_in_slices(commit, ask, respond)

    if asked.row_count > OFFSETS_AT_ONCE:
        return commit_many()
    broker.verify_offsets(body, request.version, on_verified)
    return LATER


async def _commit_in_slices(
    commit: Commit,
    ask: Callable[[Commit, Reply], None],
    respond: Callable[["Refused | KafkaError"], Slices[M]],
) -> M:
    """Commit very many offsets, with turns for others on the loop in between.

    Kafka writes them as one batch. These are several: if one is refused, the others hold.
    """
    slices = [commit._replace(topics=topics) for topics in _slices(commit.topics)]
    answers = await ask_in_slices(slices, ask, at_once=1)
    refused = await finish(_refused(slices, answers))
    return await finish(respond(refused))


def _refused(
    parts: Iterable[Commit], answers: Iterable["Refused | KafkaError"]
) -> Slices[dict[tuple[str, int], ErrorCode]]:
    """Return which partitions of all parts were refused."""
    current = Slice()
    refused: dict[tuple[str, int], ErrorCode] = {}
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, KafkaError):
            refused |= {
                (name, each.partition_index): answer.code
                for name, _, partitions in part.topics
                for each in partitions
            }
            if current.spend(OFFSETS_AT_ONCE):
                yield
        else:
            refused |= answer
    return refused


def _slices(topics: Iterable[TopicOffsets]) -> Iterator[list[TopicOffsets]]:
    """Yield the same offsets in lists of a bounded size."""
    some: list[TopicOffsets] = []
    room = OFFSETS_AT_ONCE
    for name, topic_id, partitions in topics:
        start = 0
        while start < len(partitions):
            taken = partitions[start : start + room]
            some.append(TopicOffsets(name, topic_id, taken))
            start += len(taken)
            room -= len(taken)
            if not room:
                yield some
                some, room = [], OFFSETS_AT_ONCE
    if some:
        yield some


def _before_loading_was_known(error: KafkaError) -> KafkaError:
    """Say it in a word that does not end producers of that time."""
    if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return error
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)


# What is asked for


class _Asked(NamedTuple):
    """The partitions of a request: those that exist, and those that do not."""

    existing: list[TopicOffsets]
    missing: list[tuple[str, bytes, list[int], ErrorCode]]
    """Topics by name or id, with partitions and why nothing is committed for them."""

    @property
    def row_count(self) -> int:
        """How many rows the response has."""
        missing = len(self.missing) + sum(len(indexes) for _, _, indexes, _ in self.missing)
        return missing + sum(len(topic.partitions) for topic in self.existing)


def _sort_out(image: Image, topics: Iterable[Any], *, is_by_id: bool) -> _Asked:
    """Look up what is to be committed."""
    asked = _Asked([], [])
    for topic in topics:
        partitions = topic.partitions
        found = _find(image, topic, is_by_id=is_by_id)
        if found is None:
            indexes = [each.partition_index for each in partitions]
            if is_by_id:
                asked.missing.append(("", topic.topic_id, indexes, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                asked.missing.append((topic.name, ZERO_TOPIC_ID, indexes, code))
            continue
        count = len(found.partitions)
        beyond = [
            each.partition_index for each in partitions if not 0 <= each.partition_index < count
        ]
        if beyond:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            asked.missing.append((found.name, found.topic_id, beyond, code))
            partitions = [each for each in partitions if 0 <= each.partition_index < count]
        if partitions:
            asked.existing.append(TopicOffsets(found.name, found.topic_id, partitions))
    return asked


def _find(image: Image, topic: Any, *, is_by_id: bool) -> Topic | None:
    if is_by_id:
        return image.topic_by_id(TopicId(topic.topic_id))
    return image.topic(TopicName(topic.name))


# The answer


class _Rows(NamedTuple):
    """The types of an answer's rows."""

    topic: Callable[..., Any]
    partition: Callable[..., Any]

    def __call__(self, asked: _Asked, answer: "Refused | KafkaError") -> Slices[list[Any]]:
        """Return the rows of topics: what is missing comes first, as Kafka has it."""
        current = Slice()
        code_for_all = answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE
        refused = {} if isinstance(answer, KafkaError) else answer
        rows: list[Any] = []
        by_topic: dict[tuple[str, bytes], Any] = {}
        for name, topic_id, indexes, code in asked.missing:
            row = by_topic.get((name, topic_id))
            if row is None:
                row = by_topic[name, topic_id] = self.topic(name, topic_id, [])
                rows.append(row)
            if current.spend():
                yield
            for index in indexes:
                row.partitions.append(self.partition(index, code))
                if current.spend():
                    yield
        for name, topic_id, partitions in asked.existing:
            row = by_topic.get((name, topic_id))
            if row is None:
                row = self.topic(name, topic_id, [])
                rows.append(row)
            if current.spend():
                yield
            for each in partitions:
                index = each.partition_index
                code = refused.get((name, index), code_for_all) if refused else code_for_all
                row.partitions.append(self.partition(index, code))
                if current.spend():
                    yield
        return rows


_offset_rows: Final = _Rows(OffsetCommitResponseTopic, OffsetCommitResponsePartition)
_txn_rows: Final = _Rows(
    lambda name, _, partitions: TxnOffsetCommitResponseTopic(name, partitions),
    TxnOffsetCommitResponsePartition,
)
HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
}
