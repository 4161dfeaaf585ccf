"""The connection from the leader of a share partition to the share coordinator.

If this node leads the partition of `__share_group_state`, a call is an operation of the local
shard, without a task. Else it is a request to the node that does; the calls of one turn of the loop
share one request. If a coordinator moves, loads or cannot be reached, the call is retried a few
times with a new lookup each; every other error goes to the caller.

Calls of one share partition run in order: a retry delays the following calls, as a start offset
that is written late would undo later changes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from headrace.client.errors import ClientError, UnsupportedApi, refusal
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard, State
from headrace.errors import COORDINATOR_UNAVAILABLE, ErrorCode, KafkaError
from headrace.ids import SHARE_STATES_TOPIC, BrokerId, SharePartitionKey
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.share.durable import DurableState, StateSummary, StateWrite
from headrace.share.state.calls import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    Kind,
    build_request,
)
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.operations import Beginning
from headrace.share.state.placement import state_partition
from headrace.wire.schema import Message

LINE_CALLS_MAX: Final = 1000
"""The most queued calls of one share partition."""
CALLS_A_TURN_MAX: Final = 500
"""How many calls go to other nodes in one turn of the loop; they share few requests."""

P = TypeVar("P")
A = TypeVar("A")
logger = logging.getLogger(__name__)


class Patience(NamedTuple):
    """The number of attempts, and the backoff between them, which doubles each time."""

    attempts_max: int = 5
    first_pause_seconds: float = 1.0
    pause_seconds_max: float = 30.0

    def pause_seconds(self, attempts: int) -> float:
        """Return how long to wait after so many attempts."""
        return min(self.first_pause_seconds * 2.0 ** (attempts - 1), self.pause_seconds_max)


PATIENCE: Final = Patience()


class Peers(Protocol):
    """The other nodes."""

    def send(self, node_id: BrokerId, request: Message) -> Awaitable[Any]:
        """Send a request to a node; raise ClientError without a response."""


class _Call(msgspec.Struct, Generic[P, A], eq=False):
    """A pending call."""

    kind: Kind[P, A]
    key: SharePartitionKey
    argument: P
    reply: Reply[A]
    attempts: int = 0
    is_over: bool = False
    """Whether the caller already got its error because this node stops."""

    def read_answer(self, row: Any) -> A | KafkaError:
        """Return the result in a response's row, also if it is an error."""
        if row is None:
            return KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the coordinator's response lacks {self.key.text}"
            )
        if row.error_code:
            return refusal(row.error_code, row.error_message, f"share partition {self.key.text}")
        return self.kind.answer(row, self.argument)


_AnyCall: TypeAlias = _Call[Any, Any]


class StatePersister:
    """Keeps the states of share partitions (`headrace.share.ports.Persister`)."""

    def __init__(
        self,
        node_id: BrokerId,
        states: Coordinator[ShareStatesMachine],
        image_of: Callable[[], Image],
        peers: Peers,
        *,
        create_topic: Callable[[], Coroutine[Any, Any, None]],
        patience: Patience = PATIENCE,
    ) -> None:
        self._node_id = node_id
        self._states = states
        self._image_of = image_of
        self._peers = peers
        self._create_topic = create_topic
        self._patience = patience
        self._lines: dict[SharePartitionKey, deque[_AnyCall]] = {}
        """Calls that could not complete at once: the first is in progress, the others wait."""
        self._outgoing: dict[BrokerId, list[_AnyCall]] = {}
        """Calls to send to other nodes at the end of this turn."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._creation: asyncio.Task[None] | None = None
        self._is_closed = False

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Reply[None]
    ) -> None:
        """Initialize a share partition; reply None."""
        self._begin(_Call(INITIALIZE, key, Beginning(state_epoch, start_offset), reply))

    def read_state(
        self, key: SharePartitionKey, leader_epoch: int, reply: Reply[DurableState]
    ) -> None:
        """Reply the state; fence writers with a smaller leader epoch."""
        self._begin(_Call(READ, key, leader_epoch, reply))

    def write_state(self, key: SharePartitionKey, write: StateWrite, reply: Reply[None]) -> None:
        """Merge a change; reply None once it is durable."""
        self._begin(_Call(WRITE, key, write, reply))

    def read_summary(
        self, key: SharePartitionKey, leader_epoch: int, reply: Reply[StateSummary]
    ) -> None:
        """Reply the summary."""
        self._begin(_Call(READ_SUMMARY, key, leader_epoch, reply))

    def delete(self, key: SharePartitionKey, reply: Reply[None]) -> None:
        """Delete a share partition; reply None, also if it or its topic does not exist."""

        def on_deleted(answer: KafkaError | None) -> None:
            is_gone = answer is not None and answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            reply(None if is_gone else answer)

        self._begin(_Call(DELETE, key, None, on_deleted))

    def close(self) -> None:
        """Stop; pending calls get an error."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        if self._creation is not None:
            self._creation.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        lines, self._lines = self._lines, {}
        for call in [call for line in lines.values() for call in line]:
            call.is_over = True
            call.reply(_unavailable("this node stops"))

    # One call

    def _begin(self, call: _AnyCall) -> None:
        if self._is_closed:
            call.reply(_unavailable("this node stops"))
        elif (line := self._lines.get(call.key)) is None:
            self._attempt(call)
        elif len(line) < LINE_CALLS_MAX:
            line.append(call)
        else:
            call.reply(_unavailable(f"too many calls wait for the coordinator of {call.key.text}"))

    def _attempt(self, call: _AnyCall) -> None:
        call.attempts += 1
        topic = self._image_of().topic(SHARE_STATES_TOPIC)
        if topic is None:
            self._hold(call)
            self._spawn(self._after_creation(call))
            return
        index = state_partition(call.key, len(topic.partitions))
        shard = self._states.shard_at(index)
        if shard is None:
            self._hold(call)
            self._send_soon(call, topic.partitions[index].leader)
        elif shard.state is State.LOADING:
            self._hold(call)
            self._spawn(self._after_loading(call, shard))
        else:
            self._operate(call, shard)

    def _operate(self, call: _Call[P, A], shard: Shard[ShareStatesMachine]) -> None:
        kind, key, argument = call.kind, call.key, call.argument
        answered = partial(self._on_answer, call)
        shard.write(
            lambda machine, now_ms: kind.operate(machine.state, key, argument, now_ms, answered),
            answered,
        )

    def _on_answer(self, call: _Call[P, A], answer: A | KafkaError) -> None:
        if call.is_over:
            return
        is_passing = isinstance(answer, KafkaError) and answer.code in COORDINATOR_UNAVAILABLE
        if is_passing and call.attempts < self._patience.attempts_max and not self._is_closed:
            if self._hold(call):
                self._attempt_later(call)
            return
        try:
            call.reply(answer)
        finally:
            self._release(call)

    def _attempt_later(self, call: _AnyCall) -> None:
        def attempt() -> None:
            self._timers.discard(timer)
            self._attempt(call)

        pause_seconds = self._patience.pause_seconds(call.attempts)
        timer = asyncio.get_running_loop().call_later(pause_seconds, attempt)
        self._timers.add(timer)

    # Calls of one share partition, one after the other

    def _hold(self, call: _AnyCall) -> bool:
        """Queue a call of its share partition; return whether it is its turn."""
        line = self._lines.setdefault(call.key, deque())
        if call not in line:
            line.append(call)
        return line[0] is call

    def _release(self, call: _AnyCall) -> None:
        line = self._lines.get(call.key)
        if line is None or line[0] is not call:
            return
        line.popleft()
        if line:
            # Not at once: a long queue of refusals would recurse as deep.
            asyncio.get_running_loop().call_soon(self._attempt_first, line)
        else:
            del self._lines[call.key]

    def _attempt_first(self, line: deque[_AnyCall]) -> None:
        if not self._is_closed:
            self._attempt(line[0])

    # Waiting

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _after_creation(self, call: _AnyCall) -> None:
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create_topic())
        creation = self._creation
        try:
            await asyncio.shield(creation)
        except KafkaError as error:
            self._on_answer(call, error)
        except Exception as error:
            logger.exception("%s could not be created", SHARE_STATES_TOPIC)
            self._on_answer(call, _failed(error))
        else:
            if self._image_of().topic(SHARE_STATES_TOPIC) is None:
                self._on_answer(call, _unavailable(f"{SHARE_STATES_TOPIC} is being created"))
            else:
                self._attempt(call)
        finally:
            if self._creation is creation:
                self._creation = None

    async def _after_loading(self, call: _AnyCall, shard: Shard[ShareStatesMachine]) -> None:
        await shard.loaded()
        if shard.state is State.ACTIVE:
            self._operate(call, shard)
        else:
            self._on_answer(call, _unavailable(f"{shard.journal.name} could not be loaded"))

    # Other nodes

    def _send_soon(self, call: _AnyCall, leader: BrokerId) -> None:
        if leader == NO_LEADER:
            self._on_answer(call, _unavailable(f"{call.key.text} has no coordinator now"))
        elif leader == self._node_id:
            self._on_answer(call, _unavailable(f"this node begins to coordinate {call.key.text}"))
        else:
            if not self._outgoing:
                asyncio.get_running_loop().call_soon(self._send_out)
            self._outgoing.setdefault(leader, []).append(call)

    def _send_out(self) -> None:
        if self._is_closed:
            return
        left = CALLS_A_TURN_MAX
        for node_id in tuple(self._outgoing):
            calls = self._outgoing.pop(node_id)
            if len(calls) > left:
                self._outgoing[node_id] = calls[left:]
                calls = calls[:left]
            left -= len(calls)
            requests: dict[tuple[Kind[Any, Any], str], list[_AnyCall]] = {}
            for call in calls:
                requests.setdefault((call.kind, call.key.group_id), []).append(call)
            for (kind, group_id), together in requests.items():
                self._spawn(self._ask(node_id, kind, group_id, together))
            if not left:
                break
        if self._outgoing:
            asyncio.get_running_loop().call_soon(self._send_out)

    async def _ask(
        self, node_id: BrokerId, kind: Kind[P, A], group_id: str, calls: list[_Call[P, A]]
    ) -> None:
        request = build_request(kind, group_id, [(call.key, call.argument) for call in calls])
        answers: Sequence[A | KafkaError]
        try:
            response = await self._peers.send(node_id, request)
        except UnsupportedApi as error:
            answers = [KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error))] * len(calls)
        except ClientError as error:
            answers = [_unavailable(str(error))] * len(calls)
        except Exception as error:
            logger.exception("the request to node %d failed", node_id)
            answers = [_failed(error)] * len(calls)
        else:
            rows = {
                (topic.topic_id, row.partition): row
                for topic in response.results
                for row in topic.partitions
            }
            answers = [
                call.read_answer(rows.get((call.key.topic_id, call.key.partition)))
                for call in calls
            ]
        for call, answer in zip(calls, answers, strict=True):
            try:
                self._on_answer(call, answer)
            except Exception:  # the others are to hear theirs
                logger.exception("%s: an answer could not be taken", call.key.text)


def _failed(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")


def _unavailable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
