"""Offsets that groups commit, fetch and delete: OffsetCommit, OffsetFetch, OffsetDelete."""

from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    SUBSCRIPTION,
    commit,
    group_coordinator,
    joined,
    stable,
    subscription,
)
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import Topic

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
FIRST_WITH_ALL_TOPICS = 2
FIRST_WITH_STABLE = 7
FIRST_WITH_GROUPS = 8
FIRST_WITH_IDS = 10


def offset_commit_without_members(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = talk.topic("plain", partitions=3)
    for version in COMMIT_VERSIONS:
        group = talk.name(f"v{version}")
        talk.ask(f"commit v{version}", commit(group, topic, (0, 5, "kept"), (1, 7)), version)
        with_epoch = commit(group, topic, (2, 9), leader_epoch=3)
        talk.ask(f"commit with an epoch v{version}", with_epoch, version)
        talk.ask(f"what there is of v{version}", _fetch((group, [topic], (0, 1, 2))))
        unknown = Topic(talk.name("unknown"), MADE_UP_ID)
        talk.ask(f"an unknown topic v{version}", commit(group, unknown, (0, 1)), version)
        talk.ask(f"an unknown partition v{version}", commit(group, topic, (3, 1), (0, 6)), version)
        talk.ask(f"partition -1 v{version}", commit(group, topic, (-1, 1)), version)
        talk.ask(f"an empty group id v{version}", commit("", topic, (0, 5)), version)
        talk.ask(f"an unknown member v{version}", _as(group, topic, "nobody", -1), version)
        talk.ask(f"a generation of nobody v{version}", _as(group, topic, "", 3), version)
        talk.ask(f"generation 0 of nobody v{version}", _as(group, topic, "", 0), version)
        talk.ask(f"a member of no group v{version}", _as(talk.name("new"), topic, "a", 1), version)
        empty = commit(group, topic)
        talk.ask(f"no partitions v{version}", empty, version)
        empty.topics = []
        talk.ask(f"no topics v{version}", empty, version)
    talk.ask("an id of zeros", commit(talk.name("zeros"), Topic("", bytes(16)), (0, 1)), 10)
    talk.ask("an empty name", commit(talk.name("empty"), Topic(""), (0, 1)), 9)
    talk.ask("an invalid name", commit(talk.name("invalid"), Topic("a b"), (0, 1)), 9)
    talk.ask("the group without a name is deleted", DeleteGroupsRequest(groups_names=[""]))


def offset_commit_values(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = talk.topic("plain")

    def ask(name: str, offset: int, metadata: str | None = "", epoch: int = -1) -> None:
        group = talk.name(name.replace(" ", "-"))
        for version in (2, 7, 10):
            request = commit(group, topic, (0, offset, metadata), leader_epoch=epoch)
            talk.ask(f"{name} v{version}", request, version)
        talk.ask(f"what there is after {name}", _fetch((group, [topic], (0,))))

    for offset in (-2, -1, 0, 2**63 - 1):
        ask(f"offset {offset}", offset)
    for epoch in (-2, 0, 2**31 - 1):
        ask(f"epoch {epoch}", 3, epoch=epoch)
    ask("no metadata", 3, None)
    ask("metadata of 4096 characters", 3, "m" * 4096)
    ask("metadata of 4097 characters", 3, "m" * 4097)
    ask("metadata of many bytes", 3, "ä" * 4000)
    group = talk.name("twice")
    talk.ask("a partition twice", commit(group, topic, (0, 1), (0, 2)))
    talk.ask("what there is of it", _fetch((group, [topic], (0,))))
    request = commit(group, topic, (0, 8))
    request.retention_time_ms = 1000
    talk.ask("a retention time v2", request, 2)
    request = commit(group, topic, (0, 4))
    request.topics *= 2
    talk.ask("a topic twice", request)
    talk.ask("what there is then", _fetch((group, [topic], (0,))))


def offset_commit_by_classic_members(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = talk.topic("plain")
    group = talk.name("stable")
    one = stable(talk, group, instance=talk.name("i"))
    member, generation = one.member_id, one.generation_id
    for version in COMMIT_VERSIONS:
        talk.ask(f"as it should be v{version}", _as(group, topic, member, generation), version)
        talk.ask(f"no member v{version}", commit(group, topic, (0, 1)), version)
        talk.ask(f"an unknown member v{version}", _as(group, topic, "a", generation), version)
        talk.ask(f"an old generation v{version}", _as(group, topic, member, 0), version)
        talk.ask(f"a generation ahead v{version}", _as(group, topic, member, 9), version)
        talk.ask(f"generation -1 v{version}", _as(group, topic, member, -1), version)
        talk.ask(f"no member, its generation v{version}", _as(group, topic, "", 1), version)
    for version in (7, 10):
        for name, instance in (("its", talk.name("i")), ("an unknown", "none")):
            request = _as(group, topic, member, generation)
            request.group_instance_id = instance
            talk.ask(f"{name} instance v{version}", request, version)
        request = _as(group, topic, "a", generation)
        request.group_instance_id = talk.name("i")
        talk.ask(f"its instance, another id v{version}", request, version)
    group = talk.name("unassigned")
    one = joined(talk, group)
    for version in (2, 10):
        waiting = _as(group, topic, one.member_id, one.generation_id)
        talk.ask(f"before the assignment v{version}", waiting, version)
        old = _as(group, topic, one.member_id, one.generation_id - 1)
        talk.ask(f"an old generation before the assignment v{version}", old, version)


def offset_fetch(talk: Conversation) -> None:
    group_coordinator(talk)
    topic, other = talk.topic("plain", partitions=3), talk.topic("other")
    unknown = Topic(talk.name("unknown"), MADE_UP_ID)
    group, empty = talk.name("group"), talk.name("empty")
    talk.ask("commit", commit(group, topic, (0, 5, "kept"), (1, 7)))
    talk.ask("commit to the other", commit(group, other, (0, 3), leader_epoch=2))
    for version in FETCH_VERSIONS:

        def ask(
            name: str, group: str, topics: list[Topic], *partitions: int, version: int = version
        ) -> None:
            request = _fetch((group, topics, partitions), version=version)
            talk.ask(f"{name} v{version}", request, version)

        ask("two with, one without an offset", group, [topic], 0, 1, 2)
        ask("two topics", group, [topic, other], 0)
        ask("an unknown topic", group, [unknown], 0)
        ask("a known and an unknown topic", group, [unknown, topic], 0)
        ask("an unknown partition", group, [topic], 9)
        ask("partition -1", group, [topic], -1)
        ask("a partition twice", group, [topic], 0, 0)
        ask("no partitions", group, [topic])
        ask("no topics", group, [])
        ask("a group that does not exist", empty, [topic], 0)
        ask("an empty group id", "", [topic], 0)
    for version in range(FIRST_WITH_ALL_TOPICS, 11):
        for name in (group, empty, ""):
            request = _fetch_all(name, version=version)
            talk.ask(f"all topics of {name or 'no group'} v{version}", request, version)
    for version in range(FIRST_WITH_STABLE, 11):
        request = _fetch((group, [topic], (0, 2)), version=version)
        request.require_stable = True
        talk.ask(f"what is stable v{version}", request, version)
    for version in range(FIRST_WITH_GROUPS, 11):
        rows = ((group, [topic], (0,)), (empty, [topic], (0,)), (group, [other], (0,)))
        talk.ask(f"several groups v{version}", _fetch(*rows, version=version), version)
        talk.ask(f"no group v{version}", OffsetFetchRequest(), version)
    by_zeros = _fetch((group, [Topic("", bytes(16))], (0,)))
    talk.ask("an id of zeros", by_zeros)


def offset_fetch_by_members(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = talk.topic("plain")
    group = talk.name("classic")
    one = stable(talk, group)
    talk.ask("commit", _as(group, topic, one.member_id, one.generation_id))
    for version in (9, 10):
        for name, member, epoch in (
            ("nobody", None, -1),
            ("an empty id", "", -1),
            ("the member", one.member_id, one.generation_id),
            ("the member in an old generation", one.member_id, 0),
            ("the member in no generation", one.member_id, -1),
            ("a stranger", "a", 1),
            ("nobody, in a generation", None, 1),
        ):
            for place in (group, talk.name("none")):
                request = _fetch((place, [topic], (0,)), version=version)
                request.groups[0].member_id, request.groups[0].member_epoch = member, epoch
                talk.ask(f"{name} of {place[-7:]} v{version}", request, version)


def offset_delete(talk: Conversation) -> None:
    group_coordinator(talk)
    topic, other = talk.topic("plain", partitions=3), talk.topic("other")
    group = talk.name("group")
    talk.ask("commit", commit(group, topic, (0, 5), (1, 7)))
    talk.ask("commit to the other", commit(group, other, (0, 3)))

    def ask(name: str, group: str, topic: str, *partitions: int) -> None:
        talk.ask(name, _delete(group, topic, *partitions))

    ask("a group that does not exist", talk.name("none"), topic.name, 0)
    ask("an empty group id", "", topic.name, 0)
    ask("an unknown topic", group, talk.name("unknown"), 0)
    ask("an invalid name", group, "a b", 0)
    ask("an unknown partition", group, topic.name, 9)
    ask("one without an offset", group, topic.name, 2)
    ask("no partition", group, topic.name)
    talk.ask("nothing", OffsetDeleteRequest(group_id=group))
    ask("one of two", group, topic.name, 0, 2)
    talk.ask("what is left", _fetch_all(group))
    ask("the same again", group, topic.name, 0)
    ask("a partition twice", group, topic.name, 1, 1)
    talk.ask("what is left then", _fetch_all(group))
    used = talk.name("used")
    one = stable(talk, used, ("range", subscription(topic.name)))
    own = (one.member_id, one.generation_id)
    talk.ask("a member commits", commit(used, topic, (0, 5), member=own))
    talk.ask("a member commits to the other", commit(used, other, (0, 3), member=own))
    ask("of a topic that a member reads", used, topic.name, 0, 9)
    ask("of one that none reads", used, other.name, 0)
    talk.ask("what is left of it", _fetch_all(used))
    foreign = talk.name("foreign")
    one = stable(talk, foreign, ("x", SUBSCRIPTION), protocol_type="connect")
    own = (one.member_id, one.generation_id)
    talk.ask("a worker commits", commit(foreign, topic, (0, 5), member=own))
    ask("of a group with members of another kind", foreign, topic.name, 0)


def _as(group: str, topic: Topic, member: str, epoch: int) -> OffsetCommitRequest:
    return commit(group, topic, (0, 5, "m"), member=(member, epoch))


def _fetch(
    *rows: tuple[str, list[Topic], tuple[int, ...]], version: int = 10
) -> OffsetFetchRequest:
    """Ask for the same partitions of each topic, of each group."""
    if version < FIRST_WITH_GROUPS:
        ((group, topics, partitions),) = rows
        old = [
            OffsetFetchRequestTopic(name=t.name, partition_indexes=[*partitions]) for t in topics
        ]
        return OffsetFetchRequest(group_id=group, topics=old)
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequestTopics(
                        name=topic.name if version < FIRST_WITH_IDS else "",
                        topic_id=topic.id if version >= FIRST_WITH_IDS else bytes(16),
                        partition_indexes=[*partitions],
                    )
                    for topic in topics
                ],
            )
            for group, topics, partitions in rows
        ]
    )


def _fetch_all(group: str, version: int = 10) -> OffsetFetchRequest:
    if version < FIRST_WITH_GROUPS:
        return OffsetFetchRequest(group_id=group, topics=None)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


def _delete(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
    row = OffsetDeleteRequestTopic(name=topic, partitions=rows)
    return OffsetDeleteRequest(group_id=group, topics=[row])


SCRIPTS = (
    offset_commit_without_members,
    offset_commit_values,
    offset_commit_by_classic_members,
    offset_fetch,
    offset_fetch_by_members,
    offset_delete,
)
