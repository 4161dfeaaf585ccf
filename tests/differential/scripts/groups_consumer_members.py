"""Consumer groups: static members, their offsets, and those of the classic protocol."""

from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import MemberIdentity
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.differential.consumer_requests import (
    LEFT,
    ask_beat,
    consumer_beat,
    describe,
    topic_of_groups,
)
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    SUBSCRIPTION,
    commit,
    group_coordinator,
    heartbeat,
    join,
    leave,
    stable,
    subscription,
    sync,
)
from tests.differential.requests import Topic

LEFT_STATIC = -2
"""The epoch of a static member that leaves for a while."""


def consumer_static_members(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group, topics = talk.name("group"), [topic.name]

    def beat(member: str, epoch: int, instance: str | None = "i") -> ConsumerGroupHeartbeatRequest:
        if epoch == 0:
            return consumer_beat(group, member, 0, topics=topics, owned={}, instance=instance)
        return consumer_beat(group, member, epoch, instance=instance)

    a = ask_beat(talk, "join", beat("a", 0))
    ask_beat(talk, "heartbeat", beat("a", a.member_epoch))
    ask_beat(talk, "heartbeat without the instance", beat("a", a.member_epoch, None))
    ask_beat(talk, "heartbeat of another instance", beat("a", a.member_epoch, "j"))
    ask_beat(talk, "another takes its instance", beat("b", 0))
    ask_beat(talk, "another beats as it", beat("b", a.member_epoch))
    ask_beat(talk, "another leaves for it", beat("b", LEFT))
    ask_beat(talk, "another leaves for it for a while", beat("b", LEFT_STATIC))
    ask_beat(talk, "it leaves for a while", beat("a", LEFT_STATIC))
    describe(talk, "while it is away", group)
    ask_beat(talk, "it beats all the same", beat("a", a.member_epoch))
    ask_beat(talk, "an unknown instance leaves for a while", beat("c", LEFT_STATIC, "k"))
    b = ask_beat(talk, "its successor joins", beat("b", 0))
    describe(talk, "with the successor", group)
    ask_beat(talk, "the old one beats", beat("a", a.member_epoch))
    ask_beat(talk, "the old one joins", beat("a", 0))
    ask_beat(talk, "the successor beats", beat("b", b.member_epoch))
    ask_beat(talk, "the successor leaves", beat("b", LEFT))
    describe(talk, "when all left", group)
    ask_beat(talk, "a third joins", beat("c", 0))


def consumer_offsets(talk: Conversation) -> None:
    """Commits and fetches of members of a consumer group."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group = talk.name("group")
    one = ask_beat(talk, "join", consumer_beat(group, "m", 0, topics=[topic.name], owned={}))
    epoch = one.member_epoch
    for version in range(2, 11):
        for name, member in (
            ("the member", ("m", epoch)),
            ("an old epoch", ("m", epoch - 1)),
            ("an epoch ahead", ("m", epoch + 1)),
            ("epoch -1", ("m", -1)),
            ("a stranger", ("nobody", epoch)),
            ("nobody", ("", -1)),
            ("nobody in an epoch", ("", epoch)),
        ):
            request = commit(group, topic, (0, 5, name), (1, 6), member=member)
            talk.ask(f"commit of {name} v{version}", request, version)
    for version in (9, 10):
        for name, id_, number in (
            ("the member", "m", epoch),
            ("an old epoch", "m", epoch - 1),
            ("an epoch ahead", "m", epoch + 1),
            ("a stranger", "nobody", epoch),
            ("nobody", None, -1),
            ("nobody in an epoch", None, epoch),
            ("an empty id", "", -1),
        ):
            talk.ask(
                f"fetch of {name} v{version}", _fetch(group, topic, id_, number, version), version
            )
    ask_beat(talk, "it leaves", consumer_beat(group, "m", LEFT))
    talk.ask("commit of one that left", commit(group, topic, (0, 7), member=("m", epoch)))
    talk.ask("commit to an empty group", commit(group, topic, (0, 8)))
    talk.ask("fetch from an empty group", _fetch(group, topic, None, -1, 10))


def consumer_and_classic(talk: Conversation) -> None:
    """One protocol's requests to a group of the other's."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group = talk.name("consumer")
    ask_beat(talk, "join", consumer_beat(group, "m", 0, topics=[topic.name], owned={}))
    unreadable = join(group, "", ("range", b""))
    talk.ask("a classic member whose subscription cannot be read", unreadable, 3)
    talk.ask("a classic member of another kind", join(group, protocol_type="connect"), 3)
    talk.ask("a classic heartbeat", heartbeat(group, 1, "m"))
    talk.ask("a classic heartbeat of a stranger", heartbeat(group, 1, "nobody"))
    talk.ask("a classic sync", sync(group, 1, "m"), 4)
    talk.ask("a classic leave", leave(group, MemberIdentity(member_id="m")))
    talk.ask("a classic leave of a stranger", leave(group, MemberIdentity(member_id="x")))
    classic = talk.name("classic")
    request = consumer_beat(classic, "m", 0, topics=[topic.name], owned={})
    stable(talk, classic, ("x", b"opaque"), protocol_type="connect")
    ask_beat(talk, "a consumer in a group of workers", request)
    ask_beat(talk, "the heartbeat of one", consumer_beat(classic, "m", 1))
    ask_beat(talk, "one leaves", consumer_beat(classic, "m", LEFT))
    used = talk.name("used")
    talk.ask("offsets of nobody", commit(used, topic, (0, 5)))
    request = consumer_beat(used, "m", 0, topics=[topic.name], owned={})
    ask_beat(talk, "a consumer where there are offsets only", request)
    talk.ask("they are still there", _fetch(used, topic, None, -1, 10))
    ask_beat(talk, "it leaves", consumer_beat(used, "m", LEFT))
    talk.ask("a classic member in an empty consumer group", join(used), 3)
    describe(talk, "it is none any more", used)


def consumer_group_with_classic_members(talk: Conversation) -> None:
    """Members that have not been upgraded yet, beside one that has."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    mixed = talk.name("mixed")
    ask_beat(talk, "join another", consumer_beat(mixed, "m", 0, topics=[topic.name], owned={}))
    subscribed = ("x", subscription(topic.name))
    got = ask_join(talk, "a classic member", join(mixed, "", subscribed, ("y", SUBSCRIPTION)))
    member = got.member_id
    got = ask_join(talk, "a classic member with its id", join(mixed, member, subscribed))
    generation = got.generation_id
    describe(talk, "with a classic member", mixed)
    beat = consumer_beat(mixed, "m", 1, owned={topic.id: [0, 1]})
    ask_beat(talk, "the consumer hears", beat)
    talk.ask("its heartbeat", heartbeat(mixed, generation, member))
    talk.ask("its sync", sync(mixed, generation, member), 4)
    talk.ask(
        "its sync with another protocol",
        sync(mixed, 1, member, protocol="y", protocol_type="consumer"),
    )
    talk.ask("its commit", commit(mixed, topic, (0, 5), member=(member, generation)))
    talk.ask("its commit in an old generation", commit(mixed, topic, (0, 5), member=(member, 1)))
    describe(talk, "when it synced", mixed)
    ask_join(talk, "it joins again", join(mixed, member, subscribed))
    talk.ask("the consumer leaves as a classic member", leave(mixed, MemberIdentity(member_id="m")))
    talk.ask("it leaves", leave(mixed, MemberIdentity(member_id=member)))
    talk.ask("it leaves again", leave(mixed, MemberIdentity(member_id=member)))
    describe(talk, "when it left", mixed)
    upgraded = talk.name("upgraded")
    stable(talk, upgraded, ("range", subscription(topic.name)))
    joining = consumer_beat(upgraded, "m", 0, topics=[topic.name], owned={})
    ask_beat(talk, "a consumer among classic members", joining)
    describe(talk, "with the consumer", upgraded)


def consumer_members_taken_out(talk: Conversation) -> None:
    """What a tool does with LeaveGroup."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group, topics = talk.name("group"), [topic.name]

    def member(member: str = "", instance: str | None = None) -> MemberIdentity:
        return MemberIdentity(member_id=member, group_instance_id=instance)

    for id_, instance in (("a", None), ("b", None), ("c", "i"), ("d", "j"), ("e", "k")):
        joining = consumer_beat(group, id_, 0, topics=topics, owned={}, instance=instance)
        ask_beat(talk, f"{id_} joins", joining)
    talk.ask("strangers", leave(group, member("nobody"), member("", "none"), member("")))
    talk.ask("an instance with another's id", leave(group, member("a", "i")))
    describe(talk, "nobody left", group)
    talk.ask("by id, twice", leave(group, member("a"), member("a")))
    describe(talk, "one less", group)
    talk.ask("a static member by its id", leave(group, member("c")))
    several = (member("", "j"), member("e", "k"), member("nobody", "none"))
    talk.ask("by instance", leave(group, *several))
    describe(talk, "three less", group)
    ask_beat(talk, "the heartbeat of one", consumer_beat(group, "d", 1, instance="j"))
    for version in (0, 3):
        gone = leave(group, member("b"), version=version)
        talk.ask(f"the last v{version}", gone, version)
    describe(talk, "nobody is left", group)


def ask_join(talk: Conversation, name: str, request: JoinGroupRequest) -> JoinGroupResponse:
    answer = talk.ask(name, request)
    assert isinstance(answer, JoinGroupResponse)
    return answer


def _fetch(
    group: str, topic: Topic, member: str | None, epoch: int, version: int
) -> OffsetFetchRequest:
    row = OffsetFetchRequestTopics(partition_indexes=[0, 1])
    if version >= 10:
        row.topic_id = topic.id
    else:
        row.name = topic.name
    asked = OffsetFetchRequestGroup(
        group_id=group, member_id=member, member_epoch=epoch, topics=[row]
    )
    return OffsetFetchRequest(groups=[asked])


SCRIPTS = (
    consumer_static_members,
    consumer_offsets,
    consumer_and_classic,
    consumer_group_with_classic_members,
    consumer_members_taken_out,
)
