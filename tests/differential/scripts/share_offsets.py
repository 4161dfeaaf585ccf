"""Offsets of share groups: described, altered and deleted (APIs 90, 91 and 92)."""

from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from tests.differential.consumer_requests import consumer_beat, topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator
from tests.differential.requests import batch, delete
from tests.differential.share_requests import (
    LEFT,
    alter_offsets,
    ask_beat,
    delete_offsets,
    describe,
    offsets_of,
    share_beat,
    share_coordinator,
    share_log,
    wait_for_states,
)


def share_offsets_described(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    one, two = topic_of_groups(talk, "one", partitions=2), topic_of_groups(talk, "two")
    group, missing = talk.name("group"), talk.name("missing")
    talk.append(one, batch(b"a", b"b", b"c"))
    ask_beat(talk, "join", share_beat(group, "m", 0, [one.name]))
    wait_for_states(talk, group)
    asked: tuple[tuple[str, list[tuple[str, list[int]]] | None], ...] = (
        ("both partitions", [(one.name, [0, 1])]),
        ("one partition", [(one.name, [1])]),
        ("a partition twice", [(one.name, [0, 0])]),
        ("a negative partition", [(one.name, [-1])]),
        ("no partitions", [(one.name, [])]),
        ("a topic that nobody reads", [(two.name, [0])]),
        ("a topic that is none", [(missing, [0, 1])]),
        ("a topic without a name", [("", [0])]),
        ("several", [(one.name, [0]), (two.name, [0]), (missing, [0])]),
        ("a topic twice", [(one.name, [0]), (one.name, [1])]),
        ("no topics", []),
        ("all", None),
    )
    for name, topics in asked:
        talk.ask_all_versions(name, offsets_of(group, topics))
    beyond = offsets_of(group, [(one.name, [0, 7])])
    talk.ask("a partition that is none", beyond, patience_seconds=1)
    for name, other in (("none", missing), ("without a name", "")):
        talk.ask_all_versions(f"a group {name}", offsets_of(other, [(one.name, [0])]))
        talk.ask_all_versions(f"a group {name}, all", offsets_of(other, None))
    consumers = talk.name("consumers")
    talk.ask("consumers", consumer_beat(consumers, "c", 0, topics=[one.name], owned={}))
    talk.ask_all_versions("consumers' offsets", offsets_of(consumers, [(one.name, [0])]))
    talk.ask_all_versions("all of the consumers' offsets", offsets_of(consumers, None))
    talk.ask("no group", DescribeShareGroupOffsetsRequest())
    rows = [
        DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None)
        for each in (group, missing, group)
    ]
    talk.ask("a group twice, and another", DescribeShareGroupOffsetsRequest(groups=rows))


def share_offsets_altered(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    one, two = topic_of_groups(talk, "one", partitions=2), topic_of_groups(talk, "two")
    group, missing = talk.name("group"), talk.name("missing")
    talk.append(one, batch(b"a", b"b", b"c", b"d", b"e"))
    ask_beat(talk, "join", share_beat(group, "m", 0, [one.name]))
    wait_for_states(talk, group)
    there = alter_offsets(group, (one.name, [(0, 2)]))
    talk.ask("while there is a member", there)
    ask_beat(talk, "it leaves", share_beat(group, "m", LEFT))
    talk.ask("one partition", there)
    describe(talk, "described after it", group)
    _ask_start(talk, "offsets after it", group)
    talk.ask("the same again", there)
    describe(talk, "described after the same", group)
    talk.ask("beyond the end", alter_offsets(group, (one.name, [(0, 99)])))
    _ask_start(talk, "offsets beyond the end", group)
    talk.ask("-1", alter_offsets(group, (one.name, [(0, -1)])))
    _ask_start(talk, "offsets after negative ones", group)
    talk.ask("a partition that is none", alter_offsets(group, (one.name, [(7, 1), (1, 0)])))
    talk.ask("a partition twice", alter_offsets(group, (one.name, [(0, 1), (0, 3)])))
    _ask_start(talk, "offsets after a partition twice", group)
    talk.ask("no topics", alter_offsets(group))
    talk.ask("a topic that is none", alter_offsets(group, (missing, [(0, 1)])))
    talk.ask("a topic without a name", alter_offsets(group, ("", [(0, 1)])))
    talk.ask(
        "one there is and one not", alter_offsets(group, (missing, [(0, 1)]), (one.name, [(0, 4)]))
    )
    talk.ask("a topic that nobody read", alter_offsets(group, (two.name, [(0, 0)])))
    _ask_start(talk, "offsets in the end", group)
    talk.ask("a group that is none", alter_offsets(missing, (one.name, [(0, 1)])))
    describe(talk, "a group that is none, described", missing)
    _keep_log(talk, missing)
    other = talk.name("other")
    talk.ask("a group that is none, and a topic", alter_offsets(other, (missing, [(0, 1)])))
    describe(talk, "another group that is none, described", other)
    talk.ask("no topics of another group that is none", alter_offsets(talk.name("another")))
    describe(talk, "another group without topics, described", talk.name("another"))
    talk.ask("no partitions", alter_offsets(other, (one.name, [])))
    talk.ask("a topic twice", alter_offsets(other, (one.name, [(0, 1)]), (one.name, [(1, 0)])))
    talk.ask("-2", alter_offsets(other, (one.name, [(0, -2)])))
    talk.ask("a negative partition", alter_offsets(other, (one.name, [(-1, 1)])))
    talk.ask("a group without a name", alter_offsets("", (one.name, [(0, 1)])))
    consumers = talk.name("consumers")
    talk.ask("consumers", consumer_beat(consumers, "c", 0, topics=[one.name], owned={}))
    talk.ask("consumers' offsets", alter_offsets(consumers, (one.name, [(0, 1)])))
    ask_beat(talk, "it comes back", share_beat(group, "m", 0, [one.name]))
    describe(talk, "described in the end", group)
    _keep_log(talk, group)


def share_offsets_deleted(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    one, two = topic_of_groups(talk, "one", partitions=2), topic_of_groups(talk, "two")
    three = topic_of_groups(talk, "three")
    group, missing = talk.name("group"), talk.name("missing")
    ask_beat(talk, "join", share_beat(group, "m", 0, [one.name, two.name]))
    wait_for_states(talk, group)
    talk.ask("while there is a member", delete_offsets(group, one.name))
    ask_beat(talk, "it leaves", share_beat(group, "m", LEFT))
    talk.ask("one topic", delete_offsets(group, one.name))
    talk.ask("what is left", offsets_of(group, None))
    talk.ask("it again", delete_offsets(group, one.name))
    talk.ask("a topic that nobody read", delete_offsets(group, three.name))
    talk.ask("a topic that is none", delete_offsets(group, missing))
    talk.ask("a topic without a name", delete_offsets(group, ""))
    talk.ask("no topics", delete_offsets(group))
    talk.ask("a topic twice", delete_offsets(group, two.name, two.name))
    talk.ask("nothing is left", offsets_of(group, None))
    talk.ask("several", delete_offsets(group, one.name, missing, three.name))
    talk.ask("a group that is none", delete_offsets(missing, one.name))
    talk.ask("a group without a name", delete_offsets("", one.name))
    consumers = talk.name("consumers")
    talk.ask("consumers", consumer_beat(consumers, "c", 0, topics=[one.name], owned={}))
    talk.ask("consumers' offsets", delete_offsets(consumers, one.name))
    describe(talk, "described", group)
    ask_beat(talk, "it comes back", share_beat(group, "m", 0, [one.name]))
    wait_for_states(talk, group)
    ask_beat(talk, "it leaves again", share_beat(group, "m", LEFT))
    talk.ask("the group is deleted", DeleteGroupsRequest(groups_names=[group]))
    talk.ask("offsets of a deleted group", offsets_of(group, [(one.name, [0])]))
    talk.ask("all offsets of a deleted group", offsets_of(group, None))
    _keep_log(talk, group)


def share_offsets_of_deleted_topics(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    group = talk.name("group")
    ask_beat(talk, "join", share_beat(group, "m", 0, [topic.name]))
    wait_for_states(talk, group)
    ask_beat(talk, "it leaves", share_beat(group, "m", LEFT))
    talk.ask("the topic is deleted", delete(topic.name))
    talk.gone(topic.name)
    # Not asked for before it is written: Kafka may give no answer while a topic is on its way out.
    wait_for_states(talk, group, lambda value: value is None or not value["initialized_topics"])
    talk.ask("its offsets by name", offsets_of(group, [(topic.name, [0])]))
    talk.ask("alter", alter_offsets(group, (topic.name, [(0, 1)])))
    talk.ask("delete", delete_offsets(group, topic.name))


def _ask_start(talk: Conversation, name: str, group: str) -> None:
    talk.ask(name, offsets_of(group, None))


def _keep_log(talk: Conversation, group: str) -> None:
    for number, row in enumerate(share_log(talk, group)):
        talk.keep(f"record {number}", DescribeShareGroupOffsetsRequest(), 1, row)


SCRIPTS = (
    share_offsets_described,
    share_offsets_altered,
    share_offsets_deleted,
    share_offsets_of_deleted_topics,
)
