"""Members of both protocols that come, go, stall and change protocol: what always holds.

No partition is read by two members, epochs and generations only grow, and once everybody has had
its turns every partition is read by somebody, whichever kind the group is then. A classic group is
joined by the consumer protocol between rebalances only: in one, a cooperative member reads what
no coordinator knows of any more, in Kafka too.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from headrace.errors import ErrorCode
from headrace.groups.classic.embedded_protocol import read_subscription
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.state import GroupId
from tests.unit.groups.classic.classic_world import Call
from tests.unit.groups.mixed_world import MixedWorld, assigned, read_assigned, subscribed

PARTITIONS = 4
MEMBERS_MAX = 5
TURNS_MAX = 40
SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Classic:
    """A client of the classic protocol: what it reads, and what it waits for."""

    def __init__(self, name: str, *, is_cooperative: bool) -> None:
        self.name, self.is_cooperative = name, is_cooperative
        self.member_id, self.generation = "", -1
        self.reads: set[int] = set()
        self.keeps: set[int] = set()
        self.must_join = True
        self.joining: Call | None = None
        self.syncing: Call | None = None

    @property
    def is_late(self) -> bool:
        """Whether it may read what its group has taken away: it has not heard, or not done it."""
        return bool(self.joining or self.syncing) or not self.reads <= self.keeps

    def turn(self, world: MixedWorld) -> None:
        if self.joining is not None:
            self._on_joined(world)
        elif self.syncing is not None:
            self._on_synced()
        elif self.must_join:
            self._join(world)
        else:
            self._on_code(world.heartbeat(self.member_id, self.generation).code)

    def leave(self, world: MixedWorld) -> None:
        world.leave((self.member_id, None))

    def _join(self, world: MixedWorld) -> None:
        self.reads = self.reads & self.keeps if self.is_cooperative else set()
        said = subscribed("t", owned={"t": sorted(self.reads)})
        protocols = (("range", said), ("cooperative", said))
        self.joining = world.join(
            self.name,
            self.member_id,
            protocols=protocols,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._on_joined(world)

    def _on_joined(self, world: MixedWorld) -> None:
        call = self.joining
        assert call is not None
        if not call.is_answered:
            return
        self.joining = None
        if call.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = call.answer.member_id
            self._join(world)
        elif call.code != ErrorCode.NONE:
            self._on_code(call.code)
        else:
            self.must_join, self.generation = False, call.answer.generation_id
            rows = share(call.answer.members) if call.answer.leader == self.member_id else {}
            self.syncing = world.sync(self.member_id, self.generation, rows)
            self._on_synced()

    def _on_synced(self) -> None:
        call = self.syncing
        assert call is not None
        if not call.is_answered:
            return
        self.syncing = None
        if call.code != ErrorCode.NONE:
            self._on_code(call.code)
            return
        got = set(read_assigned(bytes(call.answer.assignment)).get("t", ()))
        self.must_join = self.is_cooperative and not self.reads <= got
        # What it has to give up it reads until its next turn, in which it says that it did.
        self.keeps, self.reads = got, self.reads | got if self.must_join else got

    def _on_code(self, code: ErrorCode) -> None:
        if code == ErrorCode.NONE:
            return
        assert code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ), code
        self.must_join = True
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self.reads = set()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""


class Modern:
    """A client of the consumer protocol."""

    def __init__(self, name: str) -> None:
        self.member_id, self.epoch = name, 0
        self.reads: set[int] = set()

    def turn(self, world: MixedWorld) -> None:
        call = world.beat(self.member_id, self.epoch, {"t": sorted(self.reads)})
        if call.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch, self.reads = 0, set()
            return
        if call.code == ErrorCode.GROUP_ID_NOT_FOUND:  # it was taken out, and the group turned
            self.epoch, self.reads = 0, set()
            return
        assert call.code == ErrorCode.NONE, call.answer
        self.epoch = call.answer.member_epoch
        if call.answer.assignment is not None:
            rows = call.answer.assignment.topic_partitions
            self.reads = {index for row in rows for index in row.partitions}

    def leave(self, world: MixedWorld) -> None:
        world.beat(self.member_id, -1)


def share(members: list[Any]) -> dict[str, bytes]:
    """Assign as a cooperative leader does: nobody gets what another one still reads."""
    ids = sorted(each.member_id for each in members)
    reader = {}
    for each in members:
        for row in _owned(bytes(each.metadata)):
            reader[row] = each.member_id
    rows: dict[str, list[int]] = {each: [] for each in ids}
    for index in range(PARTITIONS):
        wanted = ids[index % len(ids)]
        if reader.get(index, wanted) == wanted:
            rows[wanted].append(index)
    return {each: assigned({"t": indexes}) for each, indexes in rows.items()}


def _owned(metadata: bytes) -> list[int]:
    said = read_subscription(metadata)
    assert said is not None
    return [index for row in said.owned_partitions for index in row.partitions]


class MigrationModel(RuleBasedStateMachine):
    """One group, its members, and a clock."""

    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.world = MixedWorld()
        self.clients: list[Classic | Modern] = []
        self.names = 0
        self.epoch = 0

    @initialize(target=members, is_cooperative=st.booleans())
    def begin(self, is_cooperative: bool) -> Any:
        return self._add(Classic("first", is_cooperative=is_cooperative))

    @rule(target=members, is_cooperative=st.booleans())
    def join_classic(self, is_cooperative: bool) -> Any:
        return self._add(Classic(self._name(), is_cooperative=is_cooperative))

    @rule(target=members)
    def join_modern(self) -> Any:
        return self._add(Modern(self._name()))

    @rule(client=members)
    def turn(self, client: Classic | Modern) -> None:
        self._turn(client)

    @rule(client=consumes(members))
    def stop(self, client: Classic | Modern) -> None:
        self.leave(client)

    def leave(self, client: Classic | Modern) -> None:
        if client in self.clients:
            self.clients.remove(client)
            client.leave(self.world)
            self.epochs_only_grow()

    @rule(client=consumes(members))
    def die(self, client: Classic | Modern) -> None:
        if client in self.clients:
            self.clients.remove(client)

    @rule(target=members, client=consumes(members), is_cooperative=st.booleans())
    def roll(self, client: Classic | Modern, is_cooperative: bool) -> Any:
        """Stop a process and start one of the other protocol in its place."""
        if client not in self.clients:
            return multiple()
        self.leave(client)
        if isinstance(client, Classic):
            return self._add(Modern(self._name()))
        return self._add(Classic(self._name(), is_cooperative=is_cooperative))

    @rule(duration_ms=st.sampled_from([100, 3_000, 9_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.world.wait(duration_ms)

    @rule()
    def settle(self) -> None:
        """Once everybody had its turns, everything is read."""
        for _ in range(TURNS_MAX):
            for client in self.clients:
                self._turn(client)
            self.world.wait(2_000)
            self.epochs_only_grow()
        if self.clients:
            read = sorted(index for client in self.clients for index in client.reads)
            assert read == list(range(PARTITIONS)), [vars(each) for each in self.clients]
            kinds = {type(client) for client in self.clients}
            assert isinstance(self._group(), ConsumerGroup if Modern in kinds else ClassicGroup)

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        group = self._group()
        if group is None:
            return
        known = [each for each in self.clients if each.member_id in group.members]
        read = [index for each in known for index in each.reads]
        assert len(read) == len(set(read)), [(each.member_id, each.reads) for each in known]

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self._group()
        if group is not None and not group.is_empty:
            now = group.epoch if isinstance(group, ConsumerGroup) else group.generation
            assert now >= self.epoch
            self.epoch = now
        else:
            self.epoch = 0  # who joins an empty group of the other kind begins it anew

    def _add(self, client: Classic | Modern) -> Any:
        if len(self.clients) >= MEMBERS_MAX:
            return multiple()
        self.clients.append(client)
        self._turn(client)
        return client

    def _turn(self, client: Classic | Modern) -> None:
        if client not in self.clients:
            return
        is_joining = isinstance(client, Modern) and client.epoch == 0
        if not (is_joining and self._is_rebalancing()):
            client.turn(self.world)
        self.epochs_only_grow()
        self.no_partition_is_read_by_two()

    def _is_rebalancing(self) -> bool:
        """Whether a classic group is in a rebalance, or between the two of a cooperative one."""
        group = self._group()
        if not isinstance(group, ClassicGroup) or group.state is ClassicState.EMPTY:
            return False
        late = [each for each in self.clients if isinstance(each, Classic) and each.is_late]
        return bool(late) or group.state is not ClassicState.STABLE

    def _name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def _group(self) -> ClassicGroup | ConsumerGroup | None:
        found = self.world.machine.state.groups.get(GroupId("g"))
        assert found is None or isinstance(found, ClassicGroup | ConsumerGroup)
        return found


TestMigration = pytest.mark.timeout(600)(MigrationModel.TestCase)
TestMigration.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
