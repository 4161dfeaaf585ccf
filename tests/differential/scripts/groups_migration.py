"""Groups that turn from the classic protocol to the consumer protocol and back (KIP-848).

With two members at a time: what a third gets depends on the ids that a broker makes up.
"""

from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import DescribeGroupsResponse
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from tests.differential.consumer_requests import topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator, join, sync
from tests.differential.mixed_group import MixedGroup, assigned, subscribed

LEFT, LEFT_STATIC = -1, -2


def migration_eager(talk: Conversation) -> None:
    """There and back with a member that gives up everything before it joins."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    group = MixedGroup(talk, "eager", topic)
    said = subscribed(topic.name)
    (a,) = group.classic(("range", said), ("roundrobin", said))
    group.beat("c joins", "c", 0)
    group.log("what the upgrade wrote")
    group.describe("upgraded")
    group.heartbeat("a is told", a)
    group.heartbeat("a is told in another generation", (a[0], 7))
    group.heartbeat("a stranger beats", ("nobody", 1))
    group.heartbeat("c beats like a classic member", ("c", 2))
    group.sync("a syncs before it joins", a)
    for version in (8, 9, 10):
        group.commit(f"a commits v{version}", a, version)
        group.commit(f"a commits in another generation v{version}", (a[0], 9), version)
        group.commit(f"a commits without a generation v{version}", (a[0], -1), version)
        group.commit(f"nobody commits v{version}", ("", -1), version)
    group.fetch("a fetches", a)
    group.fetch("a fetches in another generation", (a[0], 9))
    a = group.join("a joins again", a[0], [])
    group.heartbeat("a has joined", a)
    group.sync("a syncs", a)
    group.sync("a syncs again", a)
    group.sync("a syncs with another protocol", a, protocol="roundrobin")
    group.sync("a syncs with another type", a, protocol_type="connect")
    group.beat("c gets its part", "c", 2)
    group.describe("settled")
    group.heartbeat("a goes on", a)
    group.leave("strangers leave", ("nobody", None), (a[0], "instance"))
    group.beat("c leaves", "c", LEFT)
    group.log("what was written since")
    group.describe("downgraded")
    group.heartbeat("a is told again", a)
    a = group.join("a joins the classic group", a[0], [])
    group.sync("a leads and assigns nothing", a)
    group.describe("a classic group again")


def migration_cooperative(talk: Conversation) -> None:
    """A member that gives up only what it has to, in older versions of the embedded format."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    group = MixedGroup(talk, "cooperative", topic)
    (a,) = group.classic(("sticky", subscribed(topic.name, version=2)))
    group.beat("c joins", "c", 0)
    group.heartbeat("a is told", a)
    a = group.join("a joins with everything", a[0], [0, 1, 2, 3], protocol="sticky", embedded=2)
    group.describe("a has to give up")
    group.sync("a learns what it keeps", a, protocol="sticky")
    group.heartbeat("a is told to join once more", a)
    group.beat("c waits", "c", 2)
    a = group.join("a gave up", a[0], [0, 1], protocol="sticky", embedded=1)
    group.sync("a keeps", a, protocol="sticky")
    group.heartbeat("a goes on", a)
    group.beat("c gets", "c", 2)
    group.beat("c reads", "c", 2, owned=[2, 3])
    group.log("what was written")
    group.describe("settled")
    group.leave("c is taken out", ("c", None))
    group.describe("downgraded")


def migration_classic_member_joins(talk: Conversation) -> None:
    """A classic member in a consumer group, and one that changes its protocol with its id."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    group = MixedGroup(talk, "mixed", topic)
    group.beat("c joins", "c", 0)
    group.beat("c reads", "c", 2, owned=[0, 1, 2, 3])
    group.join("a wants an id", "")
    group.join("a joins with an id of its own", "a")
    a = ("a", 3)
    group.heartbeat("a waits", a)
    group.sync("a has nothing", a)
    group.beat("c hears", "c", 2)
    group.heartbeat("a waits for c", a)
    group.beat("c gave up", "c", 2, owned=[0, 1])
    group.heartbeat("a is told", a)
    a = group.join("a joins again", "a")
    group.sync("a gets", a)
    group.join("a joins for no reason", "a")
    group.describe("settled")
    group.beat("a becomes a consumer", "a", 0)
    group.describe("two consumers")
    group.heartbeat("a beats like a classic member", a)
    group.sync("a syncs like a classic member", a)
    group.join("a is classic again", "a", [2, 3])
    group.describe("a is classic")
    group.log("what was written")
    group.leave("a leaves", ("a", None))
    group.beat("c is alone", "c", 3)
    group.describe("c alone")


def migration_refused(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    group = MixedGroup(talk, "consumer", topic)
    group.beat("c joins", "c", 0)
    group.join("another type", "", version=3, protocol_type="connect")
    for number, said in enumerate((b"", b"\0", b"\0\1\0\0", b"\xff\xff\0\0\0\0")):
        request = join(group.group, "", ("range", said))
        talk.ask(f"a subscription that cannot be read, {number}", request, 3)
    group.join("a first protocol", "a", protocol="range")
    group.join("another protocol", "", protocol="other")
    group.join("a session too short", "b", session_ms=1)
    foreign = MixedGroup(talk, "foreign", topic)
    foreign.classic(("x", b"opaque"), protocol_type="connect")
    foreign.beat("a consumer among workers", "c", 0)
    unreadable = MixedGroup(talk, "unreadable", topic)
    a = unreadable.join("a joins", "", version=3)
    row = sync(unreadable.group, a[1], a[0], (a[0], b"all"))
    talk.quietly(row, SyncGroupResponse, 4)
    unreadable.beat("an assignment that cannot be read", "c", 0)
    unreadable.heartbeat("a goes on", a)
    stable = MixedGroup(talk, "stable", topic)
    stable.classic()
    stable.beat("it does not join", "c", 1)
    stable.beat("it leaves", "c", LEFT)


def migration_in_a_rebalance(talk: Conversation) -> None:
    """A consumer joins while classic members rebalance."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    waiting = MixedGroup(talk, "id", topic)
    waiting.join("somebody is given an id", "")
    waiting.beat("c joins", "c", 0)
    waiting.describe("nobody had joined")
    completing = MixedGroup(talk, "completing", topic)
    a = completing.join("a joins", "", version=3)
    other = [talk.name("none")]  # who of two gets what depends on their ids
    completing.beat("c joins before a syncs", "c", 0, topics=other)
    completing.log("what was written")
    completing.sync("a syncs", a)
    completing.heartbeat("a is told", a)
    completing.join("a joins again", a[0])
    preparing = MixedGroup(talk, "preparing", topic)
    (a, b) = preparing.classic(count=2)
    request = join(preparing.group, a[0], ("range", subscribed(topic.name)))
    joining = talk.begin("a waits for b", request, 9)
    talk.until(
        DescribeGroupsRequest(groups=[preparing.group]),
        DescribeGroupsResponse,
        lambda m: m.groups[0].group_state == "PreparingRebalance",
    )
    preparing.beat("c joins before b does", "c", 0)
    joining.finish()
    preparing.heartbeat("b is told", b)


def migration_static(talk: Conversation) -> None:
    """A static member that restarts with the other protocol, and back."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    group = MixedGroup(talk, "group", topic)
    a = group.join("a joins", "", [], instance="i")
    every = assigned(topic.name, 0, 1, 2, 3)
    row = sync(group.group, a[1], a[0], (a[0], every), instance="i")
    talk.quietly(row, SyncGroupResponse, 4)
    group.beat("c joins", "c", 0)
    group.heartbeat("a without its instance", a)
    group.heartbeat("a", a, instance="i")
    group.heartbeat("an unknown instance", a, instance="j")
    group.heartbeat("a stranger with the instance", ("nobody", 1), instance="i")
    group.sync("a stranger with the instance syncs", ("nobody", 1), instance="i")
    group.join("a stranger with the instance joins", "nobody", [], instance="i")
    second = group.join("it restarts", "", [], instance="i")
    group.describe("it restarted")
    group.heartbeat("the former one", a, instance="i")
    group.sync("the new one", second, instance="i")
    group.beat("it becomes a consumer", "b", 0, instance="i")
    group.beat("another wants the instance", "d", 0, instance="i")
    group.describe("two consumers")
    group.heartbeat("the former classic one", second, instance="i")
    group.beat("it leaves for a while", "b", LEFT_STATIC, instance="i")
    third = group.join("it is classic again", "", [], instance="i")
    group.sync("it has what it had", third, instance="i")
    group.log("what was written")
    group.beat("c leaves", "c", LEFT)
    group.describe("downgraded")
    last = MixedGroup(talk, "last", topic)
    last.beat("c joins", "c", 0, instance="i")
    only = last.join("the only one becomes classic", "", [], instance="i")
    last.describe("a classic group")
    last.sync("it has what it had", only, instance="i")
    last.heartbeat("it goes on", only, instance="i")
    last.leave("a tool takes it out", ("", "i"))


SCRIPTS = (
    migration_eager,
    migration_cooperative,
    migration_classic_member_joins,
    migration_refused,
    migration_in_a_rebalance,
    migration_static,
)
