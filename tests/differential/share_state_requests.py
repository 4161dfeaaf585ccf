"""Requests about the states of share partitions, in few words, and what brokers write of them."""

from typing import Any, Final

from headrace.coordinator.records import read_record_batch
from headrace.errors import ErrorCode
from headrace.ids import SHARE_STATES_TOPIC
from headrace.records.header import read_headers
from headrace.share.state.records import RECORD_TYPES
from headrace.wire.messages import (
    delete_share_group_state_request,
    initialize_share_group_state_request,
    read_share_group_state_request,
    read_share_group_state_summary_request,
    write_share_group_state_request,
)
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.wire.messages.read_share_group_state_summary_response import (
    ReadShareGroupStateSummaryResponse,
)
from headrace.wire.schema import Message
from tests.differential.conversation import Conversation
from tests.differential.plain import Plain
from tests.differential.requests import Topic, fetch, from_offset, metadata
from tests.differential.share_requests import share_coordinator

CHUNK_BYTES: Final = 1 << 24
NOT_READY: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""While the topic of states is created, and while its coordinator has not heard of a topic yet."""

Batch = tuple[int, int, int, int]
"""First and last offset, delivery state and count."""


class Share:
    """A group's view of one topic, and requests for partitions of it."""

    def __init__(self, group: str, topic_id: bytes) -> None:
        self.group = group
        self.topic_id = topic_id

    def initialize(self, state_epoch: int, start_offset: int, *partitions: int) -> Message:
        module = initialize_share_group_state_request
        rows = [
            module.PartitionData(each, state_epoch, start_offset) for each in partitions or (0,)
        ]
        topic = module.InitializeStateData(self.topic_id, rows)
        return module.InitializeShareGroupStateRequest(self.group, [topic])

    def read(self, leader_epoch: int, *partitions: int) -> Message:
        module = read_share_group_state_request
        rows = [module.PartitionData(each, leader_epoch) for each in partitions or (0,)]
        topic = module.ReadStateData(self.topic_id, rows)
        return module.ReadShareGroupStateRequest(self.group, [topic])

    def summary(self, leader_epoch: int, *partitions: int) -> Message:
        module = read_share_group_state_summary_request
        rows = [module.PartitionData(each, leader_epoch) for each in partitions or (0,)]
        topic = module.ReadStateSummaryData(self.topic_id, rows)
        return module.ReadShareGroupStateSummaryRequest(self.group, [topic])

    def delete(self, *partitions: int) -> Message:
        module = delete_share_group_state_request
        rows = [module.PartitionData(each) for each in partitions or (0,)]
        topic = module.DeleteStateData(self.topic_id, rows)
        return module.DeleteShareGroupStateRequest(self.group, [topic])

    def write(
        self,
        *batches: Batch,
        start: int = -1,
        complete: int = -1,
        leader_epoch: int = -1,
        state_epoch: int = -1,
        partitions: tuple[int, ...] = (0,),
    ) -> Message:
        module = write_share_group_state_request
        states = [module.StateBatch(*batch) for batch in batches]
        rows = [
            module.PartitionData(each, state_epoch, leader_epoch, start, complete, states)
            for each in partitions
        ]
        topic = module.WriteStateData(self.topic_id, rows)
        return module.WriteShareGroupStateRequest(self.group, [topic])


def share_states(talk: Conversation, share: Share) -> None:
    """Wait until states are kept."""
    share_coordinator(talk)
    talk.until(
        share.summary(0),
        ReadShareGroupStateSummaryResponse,
        lambda m: m.results[0].partitions[0].error_code not in NOT_READY,
    )


def keep_log(talk: Conversation, name: str, share: Share) -> None:
    """Keep what is written of a group's states."""
    talk.keep(name, share.summary(0), 0, state_log(talk, share))


def state_log(talk: Conversation, share: Share) -> list[Plain]:
    """Give what is written of a group's states."""
    found = talk.quietly(metadata(SHARE_STATES_TOPIC), MetadataResponse).topics[0]
    topic, offset = Topic(SHARE_STATES_TOPIC, found.topic_id), 0
    rows: list[Plain] = []
    while True:
        place = from_offset(topic, offset, partition=0, max_bytes=CHUNK_BYTES)
        answer = talk.quietly(fetch(place, max_bytes=CHUNK_BYTES), FetchResponse)
        chunk = memoryview(bytes(answer.responses[0].partitions[0].records or b""))
        if not chunk:
            return rows
        for position, header in read_headers(chunk):
            offset = header.last_offset + 1
            batch = chunk[position : position + header.size_bytes]
            for record in read_record_batch(batch, header, RECORD_TYPES):
                key: Any = record.key
                if key.group_id == share.group:
                    rows.append(_plain(talk, key, record.value))


def _plain(talk: Conversation, key: Message, value: Message | None) -> Plain:
    plain = None if value is None else talk.plain(value)
    if plain is not None and "create_timestamp" in plain:
        is_new = plain.pop("create_timestamp") == plain.pop("write_timestamp")
        plain["is_new"] = is_new
    return {"kind": type(key).__name__, "key": talk.plain(key), "value": plain}
