"""The states of a share group's partitions: which are initializing, and which are initialized.

A group's position in a partition is kept elsewhere (`headrace.share.state`), and has to be
initialized before members read. A heartbeat records the partitions of the group's topics that have
no state yet as *initializing*, and makes the node initialize them; they are *initialized* once that
is known to be done. A later heartbeat retries those that failed. An empty group keeps its states;
they are deleted with the group, with its offsets of a topic (`share.offsets`), and with the topic.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.share.deadlines import TOPIC_DELETION, answer_held_soon, states_key
from headrace.groups.share.group import ShareGroup, States, StateTopic, StateTopics
from headrace.groups.share.records import states_record
from headrace.groups.state import DeadlineKey, GroupId, GroupsState
from headrace.ids import UNKNOWN_OFFSET, PartitionIndex, SharePartitionKey, TopicId, TopicName

GROUPS_AT_ONCE: Final = 100
"""The number of groups that forget a deleted topic in one step."""
_NONE = frozenset[int]()


class Beginning(NamedTuple):
    """A share partition whose state is to be initialized."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int = UNKNOWN_OFFSET


def begin_states(
    state: GroupsState, group: ShareGroup, epoch: int, topics: Iterable[str], now_ms: int
) -> tuple[tuple[CoordinatorRecord, ...], tuple[Beginning, ...]]:
    """Return the states to initialize for a group with these topics, and the record of it.

    States that another heartbeat started to initialize recently are left out.
    """
    # What a group wants, and the number of its partitions, do not change within an epoch.
    moment = (state.image.applied_index, epoch)
    if group.whole_at == moment:
        return (), ()
    retry_ms = state.settings[config.GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS]
    begun: dict[TopicId, StateTopic] = {}
    for name in sorted(topics):
        topic = state.image.topic(TopicName(name))
        if topic is None:
            continue
        topic_id = topic.topic_id
        missing = frozenset(range(len(topic.partitions)))
        missing -= indexes_of(group.states.initialized, topic_id)
        if (key := states_key(group.group_id, topic_id)) in state.deadlines:
            missing -= indexes_of(group.states.initializing, topic_id)
        if missing:
            state.deadlines.set(key, now_ms + retry_ms)
            begun[topic_id] = StateTopic(name, missing)
    if not begun and not group.states.initializing:
        group.whole_at = moment
    states = with_begun(group.states, begun)
    records = () if states == group.states else (states_record(group.group_id, states),)
    return records, tuple(
        Beginning(SharePartitionKey(group.group_id, topic_id, PartitionIndex(index)), epoch)
        for topic_id, topic in begun.items()
        for index in sorted(topic.partitions)
    )


def beginning_topics(state: GroupsState, group: ShareGroup) -> set[str]:
    """Return the topics with states that are being initialized."""
    return {
        topic.name
        for topic_id, topic in group.states.initializing.items()
        if states_key(group.group_id, topic_id) in state.deadlines
    }


def note_not_begun(state: GroupsState, keys: Iterable[SharePartitionKey], now_ms: int) -> Outcome:
    """Allow the next heartbeat to retry states whose initialization failed."""
    for key in keys:
        state.deadlines.drop(states_key(key.group_id, key.topic_id))
        answer_held_soon(state, key.group_id, now_ms)
    return NOTHING


def note_begun(
    state: GroupsState,
    group_id: str,
    keys: Iterable[SharePartitionKey],
    now_ms: int,
    reply: Reply[None],
) -> Outcome:
    """Record states as initialized; the reply is None.

    States of groups and topics that were deleted meanwhile are ignored.
    """
    answers = (told(reply, None),)
    answer_held_soon(state, group_id, now_ms)
    group = state.groups.get(GroupId(group_id))
    if not isinstance(group, ShareGroup):
        return Outcome(replies=answers)
    states = group.states
    initializing, initialized = dict(states.initializing), dict(states.initialized)
    for topic_id, indexes in _by_topic(keys).items():
        topic = initializing.get(topic_id)
        if topic is None:
            continue
        begun = topic.partitions & indexes
        if rest := topic.partitions - begun:
            initializing[topic_id] = StateTopic(topic.name, rest)
        else:
            del initializing[topic_id]
        if begun:
            known = indexes_of(initialized, topic_id)
            initialized[topic_id] = StateTopic(topic.name, known | begun)
    changed = States(initializing, initialized, states.deleting)
    if changed == states:
        return Outcome(replies=answers)
    return Outcome((states_record(group_id, changed),), answers)


def _by_topic(keys: Iterable[SharePartitionKey]) -> dict[TopicId, set[int]]:
    """Return partitions by topic, so that sets of thousands are copied once."""
    found: dict[TopicId, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return found


def forget_topic_states(state: GroupsState, topic_id: TopicId, now_ms: int) -> Outcome:
    """Remove a deleted topic from share groups, a bounded number of them.

    The rest follow at once.
    """
    groups = state.share_topics.get(topic_id, {})
    records = []
    for group_id in islice(groups, GROUPS_AT_ONCE):
        group = state.groups[group_id]
        assert isinstance(group, ShareGroup)
        records.append(states_record(group_id, without_topics(group.states, {topic_id})))
    if len(groups) > GROUPS_AT_ONCE:
        state.deadlines.set((TOPIC_DELETION, topic_id.hex()), now_ms)
    return Outcome(tuple(records), is_divisible=True)


def on_topic_deletion(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Go on with a topic that was deleted."""
    return forget_topic_states(state, TopicId(bytes.fromhex(key[1])), now_ms)


# States as a whole


def with_begun(states: States, begun: Mapping[TopicId, StateTopic]) -> States:
    """Return states with more that are initializing; those being deleted are kept after all."""
    initializing = dict(states.initializing)
    for topic_id, topic in begun.items():
        known = indexes_of(initializing, topic_id)
        initializing[topic_id] = StateTopic(topic.name, known | topic.partitions)
    deleting = {each: name for each, name in states.deleting.items() if each not in begun}
    return States(initializing, states.initialized, deleting)


def with_deleting(states: States, topics: Mapping[TopicId, str]) -> States:
    """Return states with topics marked as being deleted."""
    rest = without_topics(states, topics)
    return States(rest.initializing, rest.initialized, {**states.deleting, **topics})


def without_topics(states: States, topics: Iterable[TopicId]) -> States:
    gone = frozenset(topics)
    initializing, initialized = (
        {topic_id: topic for topic_id, topic in part.items() if topic_id not in gone}
        for part in (states.initializing, states.initialized)
    )
    deleting = {each: name for each, name in states.deleting.items() if each not in gone}
    return States(initializing, initialized, deleting)


def all_topics(states: States) -> dict[TopicId, StateTopic]:
    """Return all topics with a state, and the partitions of each."""
    found = {topic_id: StateTopic(name, _NONE) for topic_id, name in states.deleting.items()}
    for part in (states.initializing, states.initialized):
        for topic_id, topic in part.items():
            found[topic_id] = StateTopic(topic.name, indexes_of(found, topic_id) | topic.partitions)
    return found


def indexes_of(topics: StateTopics, topic_id: TopicId) -> frozenset[int]:
    topic = topics.get(topic_id)
    return _NONE if topic is None else topic.partitions
