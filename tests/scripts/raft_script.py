"""Cores in a small world of words: every command gives lines that say all that came of it.

Time stands still but for `wait`. Messages wait until they are delivered. A disk is a `Stored` and
always durable, unless it is held. Heartbeats that are lost are not mentioned. A node times out a
little later than the one numbered before it.

    quorum 1 2 3 [learners 4] [setting=value]    make nodes; `start 4` makes one without a quorum
    quietly ...      do a command without its lines     lead 1       have it elected, quietly
    timeout 1        let the node's election be due     wait 100     let time pass for every node
    deliver [1>2]    deliver, until nothing is left     drop [1>2]   lose what waits
    swap 1>2         let the last overtake the others   twice 1>2    send the first again
    cut 3 / heal     lose all to and from a node        hold 1 / release 1   a slow disk
    propose 1 text   add-learner 1 4  promote 1 4  remove 1 3  transfer 1 2  read 1 7 8  snapshot 1
    restart 1        from its disk                      status / log [1]     say how it is
    configure 1 setting=value    from its next restart on
"""

from collections.abc import Callable

import msgspec

from headrace.errors import HeadraceError
from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind, HardState, Snapshot
from headrace.raft.membership import Membership, decode_membership
from headrace.raft.messages import (
    Append,
    Header,
    Heartbeat,
    HeartbeatAnswer,
    InstallSnapshot,
    Message,
    PreVoteAnswer,
    Refusal,
    VoteAnswer,
)
from headrace.raft.ready import Ready, Stored
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role

DEFAULTS = {"election_timeout_ms": 100, "heartbeat_ms": 10, "clock_drift_ms_max": 20}
STEPS_MAX = 500


class ScriptedNode:
    """A core, its disk, and what it did last."""

    def __init__(self, world: "ScriptedQuorum", node: BrokerId, membership: Membership) -> None:
        self.world = world
        self.node = node
        self.settings = world.settings
        self.stored = Stored(Snapshot(0, 0, membership, b""))
        self.is_held = False
        self.waiting: Ready | None = None
        self.applied: list[str] = []
        self.start()

    def start(self) -> None:
        self.waiting = None
        self.applied = self.stored.snapshot.data.decode().split(",")[:-1]
        self.raft = Raft(
            self.node,
            settings=self.settings,
            stored=self.stored,
            jitter=lambda bound: min(5 * self.node, bound - 1),
            now_ms=self.world.now_ms,
        )
        self.described = self.describe()

    def describe(self) -> str:
        state = self.raft.state
        return f"{state.role.value} term={state.term} leader={state.leader or '-'}"

    def work(self) -> None:
        """Do what the core wants, saying so."""
        self.note_change()
        while (ready := self.raft.ready(self.world.now_ms)) is not None:
            self.world.send(ready.early_messages)
            if ready.wants_snapshot:
                self.raft.offer_snapshot(self.stored.snapshot)
            if self.is_held and ready.must_persist:
                self.waiting = ready
                self.world.say(f"{self.node}: is storing{describe_stored(ready)}")
            else:
                self.finish(ready)

    def finish(self, ready: Ready) -> None:
        if ready.must_persist:
            self.world.say(f"{self.node}: stored{describe_stored(ready)}")
            self.store(ready)
            self.raft.persisted(ready, self.world.now_ms)
        self.world.send(ready.messages)
        if ready.snapshot is not None:
            self.applied = ready.snapshot.data.decode().split(",")[:-1]
            self.world.say(f"{self.node}: restored {','.join(self.applied) or 'nothing'}")
        if ready.committed:
            texts = " ".join(map(describe_entry, ready.committed))
            self.world.say(f"{self.node}: committed {texts}")
            self.applied += [
                entry.data.decode() for entry in ready.committed if entry.kind is EntryKind.DATA
            ]
        for read_id, index in ready.reads:
            self.world.say(f"{self.node}: read {read_id} at {index}")
        for read_id in ready.dropped_reads:
            self.world.say(f"{self.node}: read {read_id} dropped")
        self.note_change()

    def store(self, ready: Ready) -> None:
        stored = self.stored
        snapshot, entries = ready.snapshot or stored.snapshot, stored.entries
        base_index, base_term = stored.base_index, stored.base_term
        if ready.snapshot is not None:
            base_index, base_term, entries = snapshot.index, snapshot.term, []
        if ready.entries:
            entries = [*entries[: ready.entries[0].index - base_index - 1], *ready.entries]
        hard_state = ready.hard_state or stored.hard_state
        self.stored = Stored(snapshot, hard_state, base_index, base_term, entries)

    def note_change(self) -> None:
        described = self.describe()
        if described != self.described:
            self.world.say(f"{self.node}: {self.described} -> {described}")
            self.described = described


class ScriptedQuorum:
    """The world of one script."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.nodes: dict[BrokerId, ScriptedNode] = {}
        self.network: list[Message] = []
        self.cut: set[BrokerId] = set()
        self.lines: list[str] = []
        self.is_quiet = False
        self.settings = msgspec.convert(DEFAULTS, RaftSettings)

    def run(self, command: str) -> list[str]:
        self.lines = []
        name, *words = command.split()
        handle: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        try:
            handle(*words)
        except HeadraceError as error:
            self.say(f"refused: {error}")
        return self.lines

    def say(self, line: str) -> None:
        if not self.is_quiet:
            self.lines.append(line)

    def do_quietly(self, name: str, *words: str) -> None:
        self.is_quiet = True
        getattr(self, "do_" + name)(*words)
        self.is_quiet = False

    def do_lead(self, node: str) -> None:
        self.do_quietly("timeout", node)
        self.do_quietly("deliver")
        each = self.nodes[BrokerId(int(node))]
        self.say(f"{node}: {each.describe()} commit={each.raft.state.log.commit}")

    def send(self, messages: list[Message]) -> None:
        for message in messages:
            is_lost = message.sender in self.cut or message.to in self.cut
            if not (is_lost and isinstance(message, Heartbeat | HeartbeatAnswer)):
                self.say(describe_message(message) + (" (lost)" if is_lost else ""))
            if not is_lost and message.to in self.nodes:
                self.network.append(message)

    # The network

    def do_quorum(self, *words: str) -> None:
        voters: list[BrokerId] = []
        learners: list[BrokerId] = []
        target = voters
        values: dict[str, int] = dict(DEFAULTS)
        for word in words:
            if "=" in word:
                key, _, value = word.partition("=")
                values[key] = int(value)
            elif word == "learners":
                target = learners
            else:
                target.append(BrokerId(int(word)))
        self.settings = msgspec.convert(values, RaftSettings, strict=False)
        membership = Membership(tuple(voters), tuple(learners))
        for node in membership.members:
            self.nodes[node] = ScriptedNode(self, node, membership)
        self.do_status()

    def do_start(self, node: str) -> None:
        number = BrokerId(int(node))
        self.nodes[number] = ScriptedNode(self, number, Membership())

    def do_deliver(self, link: str = "") -> None:
        for _ in range(STEPS_MAX):
            message = next((each for each in self.network if is_on(link, each)), None)
            if message is None:
                return
            self.network.remove(message)
            if message.to in self.cut or message.sender in self.cut:
                continue
            node = self.nodes[message.to]
            try:
                node.raft.step(message, self.now_ms)
            except HeadraceError as error:
                self.say(f"{node.node}: refused: {error}")
            node.work()
        raise AssertionError(f"{STEPS_MAX} messages and no end")

    def do_drop(self, link: str = "") -> None:
        for message in [each for each in self.network if is_on(link, each)]:
            self.network.remove(message)
            self.say("lost " + describe_message(message))

    def do_swap(self, link: str) -> None:
        waiting = [each for each in self.network if is_on(link, each)]
        self.network.remove(waiting[-1])
        self.network.insert(0, waiting[-1])

    def do_twice(self, link: str) -> None:
        self.network.append(next(each for each in self.network if is_on(link, each)))

    def do_cut(self, *nodes: str) -> None:
        self.cut |= {BrokerId(int(node)) for node in nodes}

    def do_heal(self) -> None:
        self.cut.clear()

    # Time

    def do_timeout(self, node: str) -> None:
        each = self.nodes[BrokerId(int(node))]
        each.raft.state.election_deadline_ms = self.now_ms
        each.raft.tick(self.now_ms)
        each.work()

    def do_wait(self, duration_ms: str) -> None:
        """Let time pass, delivering nothing; every node ticks when it is due."""
        end_ms = self.now_ms + int(duration_ms)
        while True:
            due = min(each.raft.deadline_ms() for each in self.nodes.values())
            if due > end_ms:
                break
            self.now_ms = max(self.now_ms, due)
            for node in self.nodes.values():
                if node.raft.deadline_ms() <= self.now_ms:
                    node.raft.tick(self.now_ms)
                    node.work()
        self.now_ms = end_ms

    # What a node is asked for

    def do_propose(self, node: str, text: str) -> None:
        self.ask(node, lambda raft: raft.propose(text.encode(), self.now_ms))

    def do_add_learner(self, node: str, other: str) -> None:
        self.ask(node, lambda raft: raft.add_learner(BrokerId(int(other)), self.now_ms))

    def do_promote(self, node: str, other: str) -> None:
        self.ask(node, lambda raft: raft.promote(BrokerId(int(other)), self.now_ms))

    def do_remove(self, node: str, other: str) -> None:
        self.ask(node, lambda raft: raft.remove(BrokerId(int(other)), self.now_ms))

    def do_transfer(self, node: str, other: str) -> None:
        self.ask(node, lambda raft: raft.transfer(BrokerId(int(other)), self.now_ms))

    def do_read(self, node: str, *read_ids: str) -> None:
        for read_id in read_ids[:-1]:
            self.nodes[BrokerId(int(node))].raft.read(int(read_id), self.now_ms)
        self.ask(node, lambda raft: raft.read(int(read_ids[-1]), self.now_ms))

    def ask(self, node: str, question: Callable[[Raft], object]) -> None:
        each = self.nodes[BrokerId(int(node))]
        question(each.raft)
        each.work()

    def do_snapshot(self, node: str) -> None:
        each = self.nodes[BrokerId(int(node))]
        log = each.raft.state.log
        data = "".join(text + "," for text in each.applied).encode()
        snapshot = each.raft.make_snapshot(log.applied, data)
        each.raft.compact(snapshot.mark())
        entries = list(log.entries)
        each.stored = Stored(
            snapshot, each.stored.hard_state, log.base_index, log.base_term, entries
        )
        self.say(
            f"{each.node}: snapshot at {snapshot.index}/{snapshot.term} of {len(data)} bytes, "
            f"{snapshot.membership}, log from {log.base_index + 1}"
        )

    def do_hold(self, node: str) -> None:
        self.nodes[BrokerId(int(node))].is_held = True

    def do_release(self, node: str) -> None:
        each = self.nodes[BrokerId(int(node))]
        each.is_held = False
        if each.waiting is not None:
            ready, each.waiting = each.waiting, None
            each.finish(ready)
        each.work()

    def do_configure(self, node: str, *words: str) -> None:
        each = self.nodes[BrokerId(int(node))]
        values = msgspec.structs.asdict(each.settings)
        for word in words:
            key, _, value = word.partition("=")
            values[key] = value
        each.settings = msgspec.convert(values, RaftSettings, strict=False)

    def do_restart(self, node: str) -> None:
        each = self.nodes[BrokerId(int(node))]
        each.start()
        self.say(f"{each.node}: {each.describe()} log ends at {each.raft.state.log.last_index}")

    def do_status(self) -> None:
        for node in self.nodes.values():
            state = node.raft.state
            log = state.log
            self.say(
                f"{node.node}: {node.describe()} vote={state.vote or '-'} last={log.last_index}/"
                f"{log.last_term} commit={log.commit} {state.membership}"
            )
            if state.role is Role.LEADER:
                for member, progress in state.progress.items():
                    self.say(
                        f"   {member}: {progress.mode.value} match={progress.match_index} "
                        f"next={progress.next_index} in_flight={len(progress.in_flight)}"
                    )

    def do_log(self, *nodes: str) -> None:
        for node in nodes or [str(each) for each in self.nodes]:
            log = self.nodes[BrokerId(int(node))].raft.state.log
            texts = " ".join(map(describe_entry, log.entries))
            self.say(f"{node}: from {log.base_index + 1}: {texts or 'nothing'}")


def is_on(link: str, message: Message) -> bool:
    return link in ("", f"{message.sender}>{message.to}")


def describe_message(message: Message) -> str:
    words = [f"{message.sender}>{message.to} {type(message).__name__} term={message.term}"]
    if isinstance(message, PreVoteAnswer | VoteAnswer):
        words.append("yes" if message.is_granted else f"no: {Refusal(message.refusal).name}")
    elif isinstance(message, Append):
        words.append(f"after={message.previous_index}/{message.previous_term}")
        words.append(f"commit={message.commit}")
        words += map(describe_entry, message.entries)
    elif isinstance(message, InstallSnapshot):
        words.append(f"at={message.index}/{message.snapshot_term} {message.membership}")
        end = message.offset + len(message.data)
        words.append(f"bytes={message.offset}..{end} of {message.size_bytes}")
    else:
        skipped = Header.__struct_fields__
        words += [
            f"{name}={getattr(message, name)}"
            for name in message.__struct_fields__
            if name not in skipped and (name != "hold_ms" or getattr(message, name))
        ]
    return " ".join(words)


def describe_entry(entry: Entry) -> str:
    if entry.kind is EntryKind.NOOP:
        return f"{entry.index}/{entry.term}:noop"
    if entry.kind is EntryKind.MEMBERSHIP:
        return f"{entry.index}/{entry.term}:{decode_membership(entry.data)}"
    return f"{entry.index}/{entry.term}:{entry.data.decode()}"


def describe_stored(ready: Ready) -> str:
    words = ""
    if ready.snapshot is not None:
        words += f" snapshot {ready.snapshot.index}/{ready.snapshot.term}"
    if isinstance(ready.hard_state, HardState):
        words += f" term={ready.hard_state.term} vote={ready.hard_state.vote or '-'}"
        if ready.hard_state.hold_ms:
            words += f" hold_ms={ready.hard_state.hold_ms}"
    return words + "".join(" " + describe_entry(entry) for entry in ready.entries)
