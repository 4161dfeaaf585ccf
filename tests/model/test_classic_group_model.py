"""Consumers of one classic group that do anything in any order, crashes of the node included.

Each leader gives every partition to one of the members that it was told. Whatever happens, of one
generation that was assigned there is one assignment, and so a partition has one owner; generations
only grow; what was assigned survives a restart; and once the consumers behave, they get along.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.errors import ErrorCode
from headrace.groups.classic.group import ClassicState
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from tests.unit.groups.classic.classic_world import Call, World

PARTITIONS = range(5)
CLIENTS = ("a", "b", "c", "d")
STATIC = {"c": "i1", "d": "i2"}
"""Clients that have an instance id."""
PROTOCOLS = (
    (("range", b"1"), ("sticky", b"1")),
    (("sticky", b"2"), ("range", b"2")),
    (("range", b"3"),),
)
SESSION_MS = 10_000
REBALANCE_MS = 15_000
LONGEST_WAIT_MS = 400_000
NEVER_MS = 10**12
ROUNDS_MAX = 30

clients = st.sampled_from(CLIENTS)


@dataclass
class Client:
    """What a consumer knows."""

    name: str
    member_id: str = ""
    generation: int = -1
    plan: dict[str, bytes] = field(default_factory=dict)
    """What it assigns, if it leads."""
    part: bytes | None = None
    """Its partitions in the generation."""
    join: Call | None = None
    sync: Call | None = None

    @property
    def instance(self) -> str | None:
        return STATIC.get(self.name)

    def forget(self) -> None:
        self.member_id, self.generation, self.part = "", -1, None
        self.join = self.sync = None


class ClassicGroups(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from((0, 3000)))
    def begin(self, delay_ms: int) -> None:
        self.world = World(
            group_initial_rebalance_delay_ms=delay_ms,
            offsets_retention_check_interval_ms=NEVER_MS,  # groups without members stay
        )
        self.clients = {name: Client(name) for name in CLIENTS}
        self.assigned: dict[int, dict[str, bytes]] = {}
        """By generation: what its leader gave to whom, of what was written."""
        self.newest_written = 0
        self.newest_told = 0
        self.calls: list[Call] = []

    # What consumers do, well or badly

    @rule(name=clients, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from((3, 8, 9)))
    def join(
        self, name: str, protocols: tuple[tuple[str, bytes], ...] = PROTOCOLS[0], version: int = 9
    ) -> None:
        client = self.clients[name]
        client.part = None
        client.join = self._keep(
            self.world.join(
                name,
                client.member_id,
                instance=client.instance,
                protocols=protocols,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                version=version,
            )
        )
        self._look()

    @rule(name=clients)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        written = len(self.world.log)
        client.sync = self._keep(
            self.world.sync(
                client.member_id, client.generation, client.plan, instance=client.instance
            )
        )
        if len(self.world.log) > written:
            assert client.generation not in self.assigned, "a generation is assigned once"
            self.assigned[client.generation] = client.plan
        self._look()

    @rule(name=clients)
    def heartbeat(self, name: str) -> None:
        client = self.clients[name]
        call = self._keep(
            self.world.heartbeat(client.member_id, client.generation, instance=client.instance)
        )
        self._obey(client, call)

    @rule(names=st.lists(clients, min_size=1, max_size=3))
    def leave(self, names: list[str]) -> None:
        leaving = [self.clients[name] for name in names]
        self._keep(self.world.leave(*((each.member_id, each.instance) for each in leaving)))
        for client in leaving:
            client.forget()
        self._look()

    @rule(name=clients)
    def crash(self, name: str) -> None:
        """Let a consumer be gone without a word; it begins anew."""
        self.clients[name].forget()

    # What else happens

    @rule(duration_ms=st.sampled_from((0, 1, 2999, 9000, SESSION_MS, REBALANCE_MS, 100_000)))
    def wait(self, duration_ms: int) -> None:
        self.world.wait(duration_ms)
        self._look()

    @rule()
    def restart(self) -> None:
        self.world.restart()
        # A generation that was told and never assigned left no trace: its number is used again.
        self.newest_told = self.newest_written
        self._look()

    # What consumers make of answers

    def _keep(self, call: Call) -> Call:
        self.calls.append(call)
        return call

    def _look(self) -> None:
        for client in self.clients.values():
            if client.join is not None and client.join.is_answered:
                call, client.join = client.join, None
                self._on_joined(client, call)
            if client.sync is not None and client.sync.is_answered:
                call, client.sync = client.sync, None
                self._on_synced(client, call)

    def _on_joined(self, client: Client, call: Call) -> None:
        if call.code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = call.answer.member_id
            return
        if not self._obey(client, call):
            return
        answer = call.answer
        assert isinstance(answer, JoinGroupResponse)
        assert answer.generation_id >= self.newest_told, "generations only grow"
        self.newest_told = answer.generation_id
        client.member_id, client.generation = answer.member_id, answer.generation_id
        client.plan = {}
        members = [each.member_id for each in answer.members]
        assert bool(members) == (answer.leader == answer.member_id)
        if members and not answer.skip_assignment:
            client.plan = share_out(members)

    def _on_synced(self, client: Client, call: Call) -> None:
        if not self._obey(client, call):
            return
        assert isinstance(call.answer, SyncGroupResponse)
        client.part = bytes(call.answer.assignment)
        if client.instance is None:
            given = self.assigned[client.generation].get(client.member_id, b"")
            assert client.part == given, "it is what the leader gave"

    def _obey(self, client: Client, call: Call) -> bool:
        """Do what an error asks for, as consumers do; whether there was none."""
        if call.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()
        elif call.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            client.part = None
        return call.code == ErrorCode.NONE

    # What always holds

    @invariant()
    def a_partition_has_one_owner_in_a_generation(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for client in getattr(self, "clients", {}).values():
            for partition in client.part or b"":
                key = (client.generation, partition)
                assert key not in owners, f"{key} of {owners[key]} and {client.name}"
                owners[key] = client.name

    @invariant()
    def what_is_stable_is_what_the_log_gives(self) -> None:
        if not getattr(self, "world", None) or not self.world.log:
            return
        group = self.world.group()
        assert group.generation >= self.newest_written
        if group.state not in (ClassicState.STABLE, ClassicState.EMPTY):
            return
        self.newest_written = group.generation
        other = World()
        other.log = self.world.log
        other.restart()
        again = other.group()
        assert again.state is group.state
        assert (again.generation, again.leader) == (group.generation, group.leader)
        assert again.protocol_name == group.protocol_name
        assert {each.member_id: each.assignment for each in again.members.values()} == {
            each.member_id: each.assignment for each in group.members.values()
        }
        assert again.static_members == group.static_members

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.consumers_that_behave_get_everything()
            self.nobody_waits_forever()

    def consumers_that_behave_get_everything(self) -> None:
        # Members that consumers have forgotten about are gone after a session or a rebalance.
        for _ in range(ROUNDS_MAX):
            for name, client in self.clients.items():
                for _ in range(3):
                    if client.join is None and client.sync is None:
                        self._behave(name, client)
            if self._have_everything():
                return
            self.wait(3000)
        raise AssertionError("the consumers do not get along")

    def _behave(self, name: str, client: Client) -> None:
        if client.part is not None:
            self.heartbeat(name)
        if client.part is None and client.generation >= 0 and client.member_id:
            self.sync(name)
        if client.part is None and client.join is None and client.sync is None:
            self.join(name)

    def _have_everything(self) -> bool:
        group = self.world.group()
        parts = b"".join(client.part or b"" for client in self.clients.values())
        is_one = {client.generation for client in self.clients.values()} == {group.generation}
        is_settled = group.state is ClassicState.STABLE and len(group.members) == len(CLIENTS)
        return is_one and is_settled and sorted(parts) == list(PARTITIONS)

    def nobody_waits_forever(self) -> None:
        self.world.wait(LONGEST_WAIT_MS)
        assert all(call.is_answered for call in self.calls)
        assert self.world.group().state is ClassicState.EMPTY
        due_ms = self.world.machine.next_deadline_ms()
        assert due_ms is None or due_ms - self.world.now_ms > NEVER_MS - LONGEST_WAIT_MS * 100


def share_out(members: list[str]) -> dict[str, bytes]:
    """Give every partition to one of the members."""
    return {
        member: bytes(PARTITIONS[number :: len(members)]) for number, member in enumerate(members)
    }


TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestCollectionWarning")
