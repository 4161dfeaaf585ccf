"""The image against itself: however a log is cut, batched, replayed or restarted, it ends the same.

The reference is the log applied entry by entry. Names, ids and nodes come from small sets, so that
entries meet: topics are created twice, leases are drained, nodes leave that still have replicas.
"""

import hashlib
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.metadata import ddl, entries, phases
from headrace.metadata.acl_index import LITERAL, PREFIXED
from headrace.metadata.applier import Applier, Watchers
from headrace.metadata.descriptors import DescriptorId, DescriptorLease, Hlc, topic_descriptor
from headrace.metadata.entries import Batch, CatalogDdl, CatalogDdlAudited, Entry, encode_entry
from headrace.metadata.errors import Refused
from headrace.metadata.events import Event
from headrace.metadata.image import Image
from headrace.metadata.migrations import compensations_for
from headrace.metadata.phases import seal_checkpoint
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.metadata.state import (
    NO_LEADER,
    Acl,
    AclPattern,
    DelegationToken,
    Endpoint,
    MigrationRow,
    ResourceType,
    ScramCredential,
)
from headrace.metadata.variants import Octets

NAMES = [TopicName(name) for name in ("orders", "order-lines", "x")]
TOPIC_IDS = [TopicId(bytes([number]) * 16) for number in range(3)]
MIGRATION_IDS = [f"{number}0000000-0000-0000-0000-000000000000" for number in range(2)]
NODES = range(4)
VSHARDS = range(8)
GROUPS = range(10)
TIMES_MS = (0, 20, 40)
DESCRIPTORS = [topic_descriptor(name) for name in NAMES]
TOKENS = [Octets(bytes([number]) * 32) for number in range(2)]
ASSIGNMENTS = [
    ddl.Assignment(tuple(map(BrokerId, chosen)), tuple(map(BrokerId, chosen[:size])), leader)
    for chosen in ((0, 1, 2), (1, 2), (2, 3, 0), (3,))
    for size in range(1, len(chosen) + 1)
    for leader in (NO_LEADER, *chosen[:size])
]
ACLS = [
    Acl(AclPattern(2, pattern, name), principal, "*", 3, 3)
    for pattern, name, principal in product(
        (LITERAL, PREFIXED), ("orders", "order", "*"), ("User:ada", "User:bob")
    )
]


class Resolve:
    """An entry that depends on the image to be of use."""

    def __init__(self, choose: Callable[[Image], Entry | None]) -> None:
        self.choose = choose


def next_step(migration_id: str, vshard: int, target: int) -> Resolve:
    """The next checkpoint of a migration, the first one included."""

    def choose(image: Image) -> Entry | None:
        row = image.migration(migration_id)
        slot = image.slot(vshard if row is None else row.vshard)
        if slot is None:
            return None
        step: phases.Checkpoint
        if row is None:
            source = slot.topic.partitions[slot.partition].replicas[0]
            group = image.group_id(vshard)
            step = phases.AddLearner(vshard, source, target, group, 0, Hlc(1))
        else:
            step = following(row, has_ghost=bool(target))
        phase, payload, checksum = seal_checkpoint(step)
        return entries.MigrationCheckpoint(migration_id, phase, 0, payload, checksum, 7)

    return Resolve(choose)


def following(row: MigrationRow, has_ghost: bool) -> phases.Checkpoint:
    vshard, target, group = row.vshard, row.target_node, row.group_id
    match row.phase:
        case phases.Phase.ADD_LEARNER:
            return phases.CatchUp(vshard, 5)
        case phases.Phase.CATCH_UP:
            return phases.PromoteLearner(vshard, target, group)
        case phases.Phase.PROMOTE_LEARNER:
            return phases.TransferLeadership(vshard, True, target, group)
        case phases.Phase.LEADERSHIP_TRANSFER:
            return phases.Cutover(vshard, target, group)
        case _:
            return phases.Complete(vshard, 1, has_ghost)


def abort(migration_id: str) -> Resolve:
    def choose(image: Image) -> Entry | None:
        row = image.migration(migration_id)
        slot = None if row is None else image.slot(row.vshard)
        try:
            undo: tuple[phases.Compensation, ...] = ()
            if row is not None and slot is not None:
                undo = compensations_for(row, slot.topic.partitions[slot.partition])
        except Refused:
            undo = ()
        return entries.MigrationAbort(migration_id, "no", undo)

    return Resolve(choose)


def every(make: Callable[..., Any], *choices: Iterable[object]) -> list[Any]:
    """Make one of each combination."""
    return [make(*chosen) for chosen in product(*choices)]


def change(topic_id: TopicId, partition: PartitionIndex, fields: dict[str, Any]) -> ddl.Ddl:
    return ddl.ChangePartition(topic_id, partition, **fields)


def assignment_fields(assignment: ddl.Assignment) -> dict[str, Any]:
    fields = {"replicas": assignment.replicas, "isr": assignment.isr}
    return fields | {"leader": assignment.leader, "adding": assignment.replicas[3:]}


def token(token_id: str, expiry_ms: int) -> ddl.Ddl:
    return ddl.SetDelegationToken(
        DelegationToken(token_id, "User:ada", "User:ada", (), 0, 99, expiry_ms, b"")
    )


PARTITIONS = [PartitionIndex(index) for index in range(3)]
NONE_OR = (None, True, False)
DDLS: list[list[ddl.Ddl]] = [
    every(
        lambda at, first, second, configs: ddl.CreateTopic(
            NAMES[at], TOPIC_IDS[at], (first, second, first), configs
        ),
        range(3),
        ASSIGNMENTS,
        ASSIGNMENTS[:3],
        ({}, {"a": "1"}),
    ),
    [
        ddl.CreateTopic(NAMES[0], TOPIC_IDS[1], (ASSIGNMENTS[0],)),
        ddl.CreateTopic(NAMES[1], TOPIC_IDS[0], ()),
    ],
    every(ddl.DeleteTopic, TOPIC_IDS, TIMES_MS),
    every(
        lambda topic_id, size, plan: ddl.AddPartitions(topic_id, size, (plan,)),
        TOPIC_IDS,
        (1, 3, 4),
        ASSIGNMENTS,
    ),
    every(change, TOPIC_IDS, PARTITIONS, map(assignment_fields, ASSIGNMENTS)),
    every(
        change,
        TOPIC_IDS,
        PARTITIONS,
        [
            {"leader": 0},
            {"leader": 1, "expected_leader_epoch": LeaderEpoch(0)},
            {"isr": (BrokerId(1),)},
            {"isr": (BrokerId(2), BrokerId(0)), "expected_partition_epoch": 1},
            {"adding": (BrokerId(2),)},
            {"adding": ()},
            {"elr": (BrokerId(2),), "is_recovering": True},
            {},
        ],
    ),
    every(ddl.SetClusterId, ("abc", "xyz")),
    every(
        lambda node, life, rack, is_fenced, name: ddl.RegisterBroker(
            node,
            life * 16,
            (Endpoint("PLAINTEXT", "localhost", 9092, 0),),
            rack,
            is_fenced=is_fenced,
            node_name=name,
        ),
        NODES,
        (b"1", b"2"),
        (None, "r1"),
        (True, False),
        ("", "n1", "n2"),
    ),
    every(ddl.ChangeBroker, NODES, range(4), NONE_OR, NONE_OR),
    every(ddl.UnregisterBroker, NODES),
    every(
        ddl.SetConfigs,
        ResourceType,
        NAMES,
        ({}, {"a": "1"}, {"a": None, "b": "2"}, {"a": None, "b": None}),
    ),
    every(ddl.SetFeature, ("f", "g"), range(3)),
    every(lambda first, second: ddl.AddAcls((first, second)), ACLS, ACLS),
    every(lambda first, second: ddl.RemoveAcls((first, second)), ACLS, ACLS),
    every(
        lambda user, salt: ddl.SetScramCredential(user, 1, ScramCredential(salt, b"", b"", 1)),
        ("ada", "bob"),
        (b"1", b"2"),
    ),
    every(ddl.RemoveScramCredential, ("ada", "bob"), (1,)),
    every(
        ddl.SetQuota,
        ((("user", None),), (("client-id", "c"), ("user", "ada"))),
        ("rate", "bytes"),
        (None, 1.0, 2.5),
    ),
    every(token, ("t1", "t2"), TIMES_MS),
    every(ddl.ChangeTokenExpiry, ("t1", "t2"), TIMES_MS),
    every(ddl.RemoveDelegationToken, ("t1", "t2")),
    every(ddl.Expire, TIMES_MS),
]
TRANSITIONS = [
    entries.Register(30),
    entries.BeginInFlight("a:1"),
    entries.BeginInFlight("b:1"),
    entries.MarkConsumed("a:1"),
    entries.MarkConsumed("b:1"),
    entries.RevertInFlight(),
    entries.MarkExpired(),
    entries.MarkAborted(),
]


def plain(each: ddl.Ddl) -> Entry:
    return CatalogDdl(ddl.encode_ddl(each))


def audited(each: ddl.Ddl) -> Entry:
    return CatalogDdlAudited(ddl.encode_ddl(each), "1", "ada", "sql")


def topology(kind: Any) -> list[Entry | Resolve]:
    return [entries.TopologyChange(kind(node)) for node in NODES]


def routing(changes: list[Any]) -> list[Entry | Resolve]:
    return [entries.RoutingChange(each) for each in changes]


def lease(descriptor: DescriptorId, version: int, node: int, until_ms: int) -> Entry:
    held = DescriptorLease(descriptor, version, node, Hlc.of_ms(until_ms))
    return entries.DescriptorLeaseGrant(held)


def drain(descriptor: DescriptorId, version: int, until_ms: int) -> Entry:
    return entries.DescriptorDrainStart(descriptor, version, Hlc.of_ms(until_ms))


MOVES = every(next_step, MIGRATION_IDS, VSHARDS, NODES)
KINDS: list[list[Entry | Resolve]] = [
    *(every(plain, kind) for kind in DDLS),
    [audited(each) for kind in DDLS for each in kind[:20]],
    [entries.TopologyChange(entries.Join(node, f"host-{node}:9093")) for node in NODES],
    topology(entries.PromoteToVoter),
    topology(entries.StartDecommission),
    topology(entries.FinishDecommission),
    topology(entries.Leave),
    routing(every(entries.ReassignVShard, VSHARDS, GROUPS, NODES)),
    routing(every(entries.LeadershipTransfer, GROUPS, NODES)),
    routing(every(entries.RemoveMember, GROUPS, NODES)),
    every(entries.ClusterVersionBump, range(3), range(4)),
    every(lease, DESCRIPTORS, (1, 2), NODES, TIMES_MS),
    every(
        lambda node, first, second: entries.DescriptorLeaseRelease(node, (first, second)),
        NODES,
        DESCRIPTORS,
        DESCRIPTORS,
    ),
    every(drain, DESCRIPTORS, (1, 2), TIMES_MS),
    every(entries.DescriptorDrainEnd, DESCRIPTORS),
    every(
        entries.CaTrustChange,
        (None, Octets(b"a"), Octets(b"b")),
        (None, Octets(hashlib.sha256(b"a").digest())),
    ),
    every(entries.SurrogateAlloc, range(8)),
    every(entries.JoinTokenTransition, TOKENS, TRANSITIONS, TIMES_MS),
    MOVES,
    MOVES,
    every(abort, MIGRATION_IDS),
]


def three(*brokers: int) -> ddl.Assignment:
    chosen = tuple(map(BrokerId, brokers))
    return ddl.Assignment(chosen, chosen, brokers[0])


BROKERS: list[Entry | Resolve] = [
    plain(ddl.RegisterBroker(node, bytes(16), (), is_fenced=True)) for node in NODES
]
BEGINNING: list[Entry | Resolve] = [
    *BROKERS,
    *KINDS[len(DDLS) + 1],
    entries.TopologyChange(entries.PromoteToVoter(1)),
    entries.TopologyChange(entries.PromoteToVoter(2)),
    entries.TopologyChange(entries.StartDecommission(3)),
    plain(ddl.CreateTopic(NAMES[0], TOPIC_IDS[0], (three(0, 1, 2), three(1, 2)))),
    plain(ddl.CreateTopic(NAMES[1], TOPIC_IDS[1], (three(2, 0), three(1, 0, 2), three(3)))),
]
"""A cluster that there is something to do with; a sequence begins with it or with nothing."""
sequences = st.builds(
    lambda beginning, rest: beginning + rest,
    st.sampled_from([[], BROKERS, BEGINNING]),
    st.lists(st.sampled_from(KINDS).flatmap(st.sampled_from), min_size=30, max_size=80),
)


SETTINGS = settings(max_examples=40, suppress_health_check=[HealthCheck.large_base_example])
"""Long sequences: short ones hardly meet anything."""


def run_one_by_one(sequence: Iterable[Entry | Resolve]) -> tuple[list[Entry], Image, list[Event]]:
    """Apply entries as they come; give them, what they made and what was told."""
    log: list[Entry] = []
    told: list[Event] = []
    applier = Applier(Image(), Watchers(outcomes=lambda outcome: told.extend(outcome.events)))
    for each in sequence:
        entry = each.choose(applier.image) if isinstance(each, Resolve) else each
        if entry is not None:
            log.append(entry)
            applier.apply([(len(log), encode_entry(entry))])
            check_image(applier.image)
    return log, applier.image, told


def snapshot_at(image: Image, index: int) -> bytes:
    """The image's bytes, as if its last index were this one."""
    image.state.applied_index = index
    return take_snapshot(Applier(image))


@SETTINGS
@given(sequences, st.data())
def test_any_split_into_batches_gives_the_same_image_and_events(
    sequence: list[Entry | Resolve], data: st.DataObject
) -> None:
    log, expected, expected_events = run_one_by_one(sequence)
    told: list[Event] = []
    applier = Applier(Image(), Watchers(outcomes=lambda outcome: told.extend(outcome.events)))
    index = 0
    while log:
        size = data.draw(st.integers(1, 12))
        index += data.draw(st.integers(1, 3))
        applier.apply([(index, encode_entry(batch_of(log[:size], data)))])
        log = log[size:]
    assert told == expected_events
    assert snapshot_at(applier.image, 0) == snapshot_at(expected, 0)
    assert applier.image == expected


def batch_of(log: list[Entry], data: st.DataObject) -> Entry:
    """Entries in one, sometimes with some of them in a batch of their own."""
    cut = data.draw(st.integers(0, len(log)))
    if cut > 1:
        return Batch((Batch(tuple(log[:cut])), *log[cut:]))
    return Batch(tuple(log)) if len(log) != 1 else log[0]


@SETTINGS
@given(sequences, st.data())
def test_any_snapshots_restarts_and_replays_give_the_same_image(
    sequence: list[Entry | Resolve], data: st.DataObject
) -> None:
    entries_, expected, _ = run_one_by_one(sequence)
    log: list[tuple[int, bytes]] = []
    for entry in entries_:
        if data.draw(st.integers(0, 5)) == 0:
            log.append((len(log) + 1, b""))
        log.append((len(log) + 1, encode_entry(entry)))
    applier, snapshot, done = Applier(Image()), b"", 0
    while done < len(log):
        match data.draw(st.integers(0, 3)):
            case 0:
                snapshot = take_snapshot(applier)
            case 1:
                # A crash: what is left is the last snapshot and the log.
                applier = Applier(load_snapshot(snapshot) if snapshot else Image())
                assert applier.apply(log[:done]) == done
            case _:
                again = data.draw(st.integers(0, done))
                done = min(len(log), done + data.draw(st.integers(1, 20)))
                assert applier.apply(log[again:done]) == done
    check_image(applier.image)
    assert snapshot_at(applier.image, 0) == snapshot_at(expected, 0)
    assert applier.image == expected


def check_image(image: Image) -> None:
    """What must hold in every image, and that its indexes are those of its rows."""
    fresh = Image(image.state)
    groups_seen = []
    for topic in image.topics():
        assert image.topic_by_id(topic.topic_id) is topic
        for index, partition in enumerate(topic.partitions):
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader == NO_LEADER or partition.leader in partition.isr
            assert set(partition.adding) < set(partition.replicas)
            assert all(image.broker(each) is not None for each in partition.replicas)
            assert image.slot(partition.vshard_id) == (topic, index)
            group_id = image.group_id(partition.vshard_id)
            assert image.vshard_of_group(group_id) == partition.vshard_id
            groups_seen.append(group_id)
    assert 0 not in groups_seen
    assert len(set(groups_seen)) == len(groups_seen)
    for node in NODES:
        broker_id = BrokerId(node)
        assert image.replica_count(broker_id) == fresh.replica_count(broker_id)
        assert list(image.partitions_of(broker_id)) == list(fresh.partitions_of(broker_id))
        assert image.leader_count(broker_id) == fresh.leader_count(broker_id)
    for vshard in range(image.state.next_vshard):
        assert image.slot(vshard) == fresh.slot(vshard)
        assert image.migration_of_vshard(vshard) == fresh.migration_of_vshard(vshard)
    for group_id in range(image.state.next_vshard + 10):
        assert image.group(group_id) == fresh.group(group_id)
    for name in ("", "n1", "n2"):
        assert image.broker_by_name(name) == fresh.broker_by_name(name)
    for topic_name in NAMES:
        assert image.acls_for(2, topic_name) == fresh.acls_for(2, topic_name)
    state = image.state
    live = {vshard for vshard in range(state.next_vshard) if image.slot(vshard) is not None}
    assert live.issuperset(state.regrouped)
    assert live.issuperset(state.ghosts)
    assert live.issuperset(row.vshard for row in state.migrations.values())
    assert all(name in state.topics for kind, name in state.configs if kind is ResourceType.TOPIC)
    members = state.metadata_group
    assert members.leader is None or members.leader in members.members
    assert set(members.members + members.learners) <= set(image.state.nodes)
