"""Requests about share groups, in few words."""

from collections.abc import Callable
from typing import Final

from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.differential.conversation import Conversation
from tests.differential.group_log import in_order, written
from tests.differential.plain import Plain

LEFT: Final = -1
"""The epoch of a member that leaves."""
SHARE: Final = 2
ANY_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
STATE_RECORD: Final = "ShareGroupStatePartitionMetadataKey"


def share_beat(
    group: str,
    member: str,
    epoch: int,
    topics: list[str] | None = None,
    *,
    rack: str | None = None,
) -> ShareGroupHeartbeatRequest:
    """A heartbeat; what is left out has not changed."""
    return ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=rack,
        subscribed_topic_names=topics,
    )


def ask_beat(
    talk: Conversation, name: str, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    answer = talk.ask(name, request)
    assert isinstance(answer, ShareGroupHeartbeatResponse)
    return answer


def describe(talk: Conversation, name: str, *groups: str) -> None:
    talk.ask(name, ShareGroupDescribeRequest(group_ids=list(groups)))


def share_coordinator(talk: Conversation) -> None:
    """Wait until states are kept: the first who asks has their topic created."""
    key = f"{talk.name('any')}:{ANY_TOPIC_ID}:0"
    talk.until(
        FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]),
        FindCoordinatorResponse,
        lambda m: m.coordinators[0].error_code == 0,
    )


def offsets_of(
    group: str, topics: list[tuple[str, list[int]]] | None
) -> DescribeShareGroupOffsetsRequest:
    rows = None
    if topics is not None:
        rows = [DescribeShareGroupOffsetsRequestTopic(name, indexes) for name, indexes in topics]
    row = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=rows)
    return DescribeShareGroupOffsetsRequest(groups=[row])


def alter_offsets(
    group: str, *topics: tuple[str, list[tuple[int, int]]]
) -> AlterShareGroupOffsetsRequest:
    """Set offsets; each topic with partitions and the offset of each."""
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                name,
                [AlterShareGroupOffsetsRequestPartition(index, start) for index, start in rows],
            )
            for name, rows in topics
        ],
    )


def delete_offsets(group: str, *topics: str) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(name) for name in topics]
    )


def state_records(talk: Conversation, group: str) -> list[Plain]:
    return [row for row in written(talk, group) if row["kind"] == STATE_RECORD]


def wait_for_states(
    talk: Conversation, group: str, is_so: Callable[[Plain], bool] | None = None
) -> None:
    """Wait until the last that is written of a group's states is as wanted: all initialised."""
    talk.until_so(
        lambda: (rows := state_records(talk, group)) and (is_so or _is_whole)(rows[-1]["value"])
    )


def whole_states(*counts: int) -> Callable[[Plain], bool]:
    """Whether all states have begun, of topics with so many partitions."""

    def is_so(value: Plain) -> bool:
        if value is None or value["initializing_topics"]:
            return False
        found = [len(topic["partitions"]) for topic in value["initialized_topics"]]
        return sorted(found) == sorted(counts)

    return is_so


def share_log(talk: Conversation, group: str) -> list[Plain]:
    """Give the records of a group, without those that say what the one before said."""
    rows: list[Plain] = []
    last: dict[str, Plain] = {}
    for row in in_order(written(talk, group)):
        if row["kind"] != STATE_RECORD or last.get(STATE_RECORD) != row:
            rows.append(row)
        last[row["kind"]] = row
    return rows


def _is_whole(value: Plain) -> bool:
    return (
        value is not None and bool(value["initialized_topics"]) and not value["initializing_topics"]
    )
