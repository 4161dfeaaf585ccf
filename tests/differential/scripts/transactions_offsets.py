"""Offsets committed in transactions: TxnOffsetCommit, and what OffsetFetch shows of them."""

from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.consumer_requests import consumer_beat, topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import commit, group_coordinator, stable
from tests.differential.requests import Producer, Topic
from tests.differential.transaction_requests import (
    add_offsets,
    begun,
    end,
    transaction_coordinator,
)

STRANGER = 987_654_321
FIRST_WITH_MEMBERS = 3
FIRST_OF_TRANSACTIONS_2 = 5


def transactional_offsets(talk: Conversation) -> None:
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    for version in range(6):
        for committed in (True, False):
            what = f"v{version}, {'committed' if committed else 'aborted'}"
            group = talk.name(f"group-{version}-{committed}")
            id_ = talk.name(f"t-{version}-{committed}")
            one = begun(talk, id_)
            offsets = _commit(id_, group, one, topic, (0, 5, "m"), (1, 6))
            if version < FIRST_OF_TRANSACTIONS_2:
                talk.ask_settled(f"before they are added {what}", offsets, version)
                asked = add_offsets(id_, one, group)
                talk.ask_settled(f"add offsets {what}", asked, min(version, 4))
            talk.ask_settled(f"commit {what}", offsets, version)
            talk.ask(f"meanwhile {what}", _fetch(group, topic))
            talk.ask(f"what is stable meanwhile {what}", _fetch(group, topic, stable=True))
            request = end(id_, one, committed=committed)
            got = talk.ask_settled(f"end {what}", request, version)
            assert isinstance(got, EndTxnResponse)
            talk.until(
                _fetch(group, topic, stable=True),
                OffsetFetchResponse,
                lambda m: all(
                    p.error_code == 0 for g in m.groups for t in g.topics for p in t.partitions
                ),
            )
            talk.ask(f"when it is over {what}", _fetch(group, topic))
            talk.ask_settled(f"a late commit {what}", offsets, version)
    talk.ask("the groups", ListGroupsRequest())


def transactional_offset_errors(talk: Conversation) -> None:
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    unknown = Topic(talk.name("unknown"))
    id_, group = talk.name("t"), talk.name("group")
    for version in range(6):
        one = begun(talk, id_)
        if version < FIRST_OF_TRANSACTIONS_2:
            talk.ask_settled(
                f"add offsets v{version}", add_offsets(id_, one, group), min(version, 4)
            )

        def ask(what: str, request: TxnOffsetCommitRequest, *, version: int = version) -> None:
            talk.ask_settled(f"{what} v{version}", request, version)

        ask("an unknown topic", _commit(id_, group, one, unknown, (0, 1)))
        both = _commit(id_, group, one, unknown, (0, 1))
        both.topics += _commit(id_, group, one, topic, (0, 1)).topics
        ask("a known and an unknown topic", both)
        ask("an unknown partition", _commit(id_, group, one, topic, (9, 1)))
        ask("long metadata", _commit(id_, group, one, topic, (0, 1, "m" * 4097), (1, 2)))
        ask("offset -1", _commit(id_, group, one, topic, (0, -1)))
        ask("no partition", _commit(id_, group, one, topic))
        nothing = _commit(id_, group, one, topic)
        nothing.topics = []
        ask("no topic", nothing)
        ask("an empty group id", _commit(id_, "", one, topic, (0, 1)))
        ask("an empty transactional id", _commit("", group, one, topic, (0, 1)))
        ask("another transactional id", _commit(talk.name("none"), group, one, topic, (0, 1)))
        ahead = Producer(one.id, one.epoch + 3)
        ask("an epoch ahead", _commit(id_, group, ahead, topic, (0, 1)))
        ask("epoch -1", _commit(id_, group, Producer(one.id, -1), topic, (0, 1)))
        ask("a stranger", _commit(id_, group, Producer(STRANGER, 0), topic, (0, 1)))
        ask("as it should be", _commit(id_, group, one, topic, (0, 5)))
        ask("a partition twice", _commit(id_, group, one, topic, (0, 5), (0, 6)))
        talk.ask(f"delete the group v{version}", DeleteGroupsRequest(groups_names=[group]))
        talk.ask_settled(f"end v{version}", end(id_, one), min(version, 4))


def transactional_offsets_of_members(talk: Conversation) -> None:
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    classic, consumer = talk.name("classic"), talk.name("consumer")
    member = stable(talk, classic, instance=talk.name("i"))
    talk.ask("a consumer", consumer_beat(consumer, "m", 0, topics=[topic.name], owned={}))
    for version in range(6):
        for group, known, epoch in ((classic, member.member_id, 1), (consumer, "m", 2)):
            id_ = talk.name(f"{version}-{group[-8:]}")
            one = begun(talk, id_)
            if version < FIRST_OF_TRANSACTIONS_2:
                asked = add_offsets(id_, one, group)
                talk.ask_settled(f"add offsets v{version} of {group[-8:]}", asked, min(version, 4))
            rows: list[tuple[str, str, int, str | None]] = [("nobody", "", -1, None)]
            if version >= FIRST_WITH_MEMBERS:
                rows += [
                    ("the member", known, epoch, None),
                    ("an old epoch", known, epoch - 1, None),
                    ("an epoch ahead", known, epoch + 1, None),
                    ("no epoch", known, -1, None),
                    ("a stranger", "nobody", epoch, None),
                    ("nobody in an epoch", "", epoch, None),
                    ("its instance", known, epoch, talk.name("i")),
                    ("an unknown instance", known, epoch, "none"),
                ]
            for what, id_of_member, number, instance in rows:
                request = _commit(id_, group, one, topic, (0, 5))
                request.member_id, request.generation_id = id_of_member, number
                request.group_instance_id = instance
                name = f"{what} of {group[-8:]} v{version}"
                talk.ask_settled(name, request, version)
            talk.ask_settled(f"end v{version} of {group[-8:]}", end(id_, one), min(version, 4))


def transactional_offsets_beside_others(talk: Conversation) -> None:
    """A plain commit while a transaction holds one, and the reverse."""
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    id_, group = talk.name("t"), talk.name("group")
    one = begun(talk, id_)
    talk.ask("a plain commit", commit(group, topic, (0, 1), (1, 1)))
    talk.ask_settled("a commit in a transaction", _commit(id_, group, one, topic, (0, 5)), 5)
    talk.ask("what there is", _fetch(group, topic))
    talk.ask("what is stable", _fetch(group, topic, stable=True))
    everything = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
    )
    talk.ask("all that is stable", everything)
    talk.ask("a plain commit meanwhile", commit(group, topic, (0, 3)))
    talk.ask("what there is then", _fetch(group, topic))
    talk.ask_settled("end", end(id_, one), 5)
    talk.until(
        _fetch(group, topic, stable=True),
        OffsetFetchResponse,
        lambda m: m.groups[0].topics[0].partitions[0].error_code == 0,
    )
    talk.ask("the transaction was begun before, and ended after", _fetch(group, topic))


def _commit(
    id_: str,
    group: str,
    producer: Producer,
    topic: Topic,
    *rows: tuple[int, int] | tuple[int, int, str],
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=id_,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=row[0],
                        committed_offset=row[1],
                        committed_metadata=row[2] if len(row) > 2 else "",
                    )
                    for row in rows
                ],
            )
        ],
    )


def _fetch(group: str, topic: Topic, *, stable: bool = False) -> OffsetFetchRequest:
    row = OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=[0, 1])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[row])
    return OffsetFetchRequest(groups=[asked], require_stable=stable)


SCRIPTS = (
    transactional_offsets,
    transactional_offset_errors,
    transactional_offsets_of_members,
    transactional_offsets_beside_others,
)
