"""Charging requests to the quotas of their clients, and holding clients back (KIP-13, 124, 219).

    metering = Metering(quotas, counters, loop_ms, exempts)
    dispatcher.meter(partial(metering.handle, dispatcher.handle))

A client that has used too much gets its response at once, with the time for which it is held back
(`throttle_time_ms`); for that time nothing is read from its connection. A fetch gets no records
then. Requests of other nodes are not charged.

For bytes of a ShareFetch no connection is held back: its client holds records, and would lose them
to others before its acknowledgements are read. It gets no more records until the time is over.

Without quotas a dispatcher has no metering and requests no toll: nothing of this is on their path.
What was used is counted by `security.quotas`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from types import CoroutineType, GeneratorType
from typing import Any, Final, TypeAlias, cast

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.counters import Counters, QuotaCounters
from headrace.loop.slices import in_slices
from headrace.security.quotas.meters import Budget, Budgets, ClientQuotas
from headrace.security.quotas.rates import WAIT_MS_MAX
from headrace.server.request import INLINE_ELEMENTS_MAX, Request
from headrace.wire import ApiKey, response_parts
from headrace.wire.elements import has_elements
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.schema import Message

RESPONSE_BYTES: Final = 30
ROW_BYTES: Final = 42
"""What a partition takes of a fetch response, beside its records; and the response itself."""
PERCENT_PER_NS: Final = 100 / 1e9
INTERNAL_CLIENTS: Final = ("headrace-node-", "headrace-tier")
"""How the client ids of nodes begin."""
_EXEMPT: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""How clients authenticate."""
_OF_NODES: Final = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""What nodes ask each other."""

Handle: TypeAlias = Callable[[Request], None]
Exempts: TypeAlias = Callable[[Request], bool]
"""Returns whether a request is another node's."""


class Metering:
    """Charges the requests of a node to the quotas of their clients."""

    def __init__(
        self,
        quotas: ClientQuotas,
        counters: Counters,
        now_ms: Callable[[], int],
        exempts: Exempts,
    ) -> None:
        """`now_ms` is a clock that never goes back."""
        self.quotas = quotas
        self.counts = counters.quotas
        self.now_ms = now_ms
        self.monotonic_ns = counters.monotonic_ns
        self._exempts = exempts

    def handle(self, handle: Handle, request: Request) -> None:
        """Handle a request and charge it to its client."""
        budgets = self._budgets(request)
        if budgets is None:
            handle(request)
            return
        toll = request.toll = Toll(self, budgets)
        request.__class__ = MeteredRequest
        toll.begin()
        handle(request)
        toll.end()

    def _budgets(self, request: Request) -> Budgets | None:
        """Return what the client may use, None if it is not limited."""
        # A call of the node-to-node protocol has a type of its own, and is not a client's.
        if type(request) is not Request or request.api_key in _EXEMPT:
            return None
        if self._exempts(request):
            return None
        budgets = self.quotas.budgets(*_who(request), self.now_ms())
        return budgets if any(budgets) else None


class Toll:
    """What one request uses up."""

    __slots__ = ("_begun_ns", "_budgets", "_busy_ns", "_is_charged", "_metering", "_wait_ms")

    def __init__(self, metering: Metering, budgets: Budgets) -> None:
        self._metering = metering
        self._budgets = budgets
        self._busy_ns = 0
        """How long the loop has worked for it."""
        self._begun_ns = 0
        """When the loop began to, 0 while it does not."""
        self._wait_ms = 0
        """How long its client is held back for changes of metadata, or for a fetch."""
        self._is_charged = False
        """Whether it was charged before its response was ready."""

    def begin(self) -> None:
        self._begun_ns = self._metering.monotonic_ns()

    def end(self) -> None:
        if self._begun_ns:
            self._busy_ns += self._metering.monotonic_ns() - self._begun_ns
            self._begun_ns = 0

    # What handlers ask

    def fetch_bytes_max(self, configured: int) -> int:
        """Return how many bytes a fetch may read: more would always be too much."""
        budget = self._budgets.fetch
        return configured if budget is None else int(min(configured, max(budget.most_at_once, 1)))

    def share_wait_ms(self) -> int:
        """Return for how many ms a share fetch gets no records, 0 if it may have some."""
        budget = self._budgets.fetch
        return 0 if budget is None else budget.wait_ms(self._metering.now_ms())

    def holds_back(self, record_bytes: int, row_count: int) -> int:
        """Charge a fetch; return for how many ms its client waits without its records, 0 if not.

        The first records after a while are sent whatever their size, with the wait behind them:
        a batch may be larger than what a client may have at once.
        """
        self.end()
        self._is_charged = True
        metering, budget = self._metering, self._budgets.fetch
        now_ms = metering.now_ms()
        busy_ns, self._busy_ns = self._busy_ns, 0
        wait_ms = _spend(
            self._budgets.request, busy_ns * PERCENT_PER_NS, now_ms, metering.counts["request"]
        )
        if budget is not None and record_bytes:
            size = RESPONSE_BYTES + ROW_BYTES * row_count + record_bytes
            was_unused = budget.is_unused(now_ms)
            wait_for_bytes_ms = _spend(budget, size, now_ms, metering.counts["fetch"])
            if was_unused:
                # Nor does the request quota keep them: this wait may be a hundred times as long.
                self._wait_ms = max(wait_ms, wait_for_bytes_ms)
                return 0
            wait_ms = max(wait_ms, wait_for_bytes_ms)
            if wait_ms:
                budget.add(-size, now_ms)
        self._wait_ms = wait_ms
        return wait_ms

    def change(self, mutations: int, *, is_strict: bool) -> None:
        """Charge changes of metadata: partitions that are created or deleted.

        THROTTLING_QUOTA_EXCEEDED if there are no tokens left and `is_strict`: clients that know
        this error. Others get what they want, and wait.
        """
        metering, budget = self._metering, self._budgets.mutation
        if budget is None:
            return
        now_ms = metering.now_ms()
        if not is_strict:
            wait_ms = budget.take_tokens(mutations, now_ms)
            self._hold_for_tokens(wait_ms)
            return
        debt_ms = budget.debt_ms(now_ms)
        if debt_ms:
            self._hold_for_tokens(debt_ms)
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"more partitions were created and deleted than controller_mutation_rate="
                f"{budget.limit:g} allows: try again in {debt_ms} ms",
            )
        budget.take_tokens(mutations, now_ms)

    def _hold_for_tokens(self, wait_ms: int) -> None:
        if wait_ms > self._wait_ms:
            _count(self._metering.counts["controller_mutation"], wait_ms)
            self._wait_ms = wait_ms

    # What responses cost

    def charge(self, request: Request, body: Message | None) -> int:
        """Charge a request whose response is ready; return how long its client is held back."""
        self.end()
        metering, budgets = self._metering, self._budgets
        now_ms, counts = metering.now_ms(), metering.counts
        wait_ms = 0
        if self._is_charged:
            return self._wait_ms  # a fetch, charged before its records were taken
        if request.api_key == ApiKey.PRODUCE:
            wait_ms = _spend(budgets.produce, request.size_bytes, now_ms, counts["produce"])
        elif request.api_key == ApiKey.SHARE_FETCH and (size := _record_bytes(body)):
            # Its records are leased to the client already: it gets them, and acknowledges them
            # while it waits for more.
            _spend(budgets.fetch, size, now_ms, counts["fetch"])
        elif request.api_key == ApiKey.FETCH and (size := _record_bytes(body)):
            # It says that it is a follower's, which gets what there is, and waits afterwards.
            wait_ms = _spend(budgets.fetch, size, now_ms, counts["fetch"])
        percent, self._busy_ns = self._busy_ns * PERCENT_PER_NS, 0
        waits = (wait_ms, _spend(budgets.request, percent, now_ms, counts["request"]))
        return max(self._wait_ms, *waits)

    def charge_sending(self) -> None:
        """Charge what the response took to encode; the next request waits for it."""
        self.end()
        budget, self._busy_ns, busy_ns = self._budgets.request, 0, self._busy_ns
        if budget is not None:
            budget.add(busy_ns * PERCENT_PER_NS, self._metering.now_ms())

    def left_ms(self, user: str, client_id: str) -> Callable[[], int]:
        """Return what says how long the client is held back still, once quotas have changed."""
        metering, quotas = self._metering, self._metering.quotas
        generation = quotas.generation

        def left_ms() -> int:
            if quotas.generation == generation:
                return WAIT_MS_MAX
            now_ms = metering.now_ms()
            return quotas.budgets(user, client_id, now_ms).wait_ms(now_ms)

        return left_ms


class MeteredRequest(Request):
    """A request of a client that quotas limit. Others pay nothing for this."""

    __slots__ = ()
    is_metered = True

    def answer(self, body: Message | None, *, is_large: bool = False) -> None:
        """Send the response, with how long the client is held back, and hold it back."""
        if body is not None and hasattr(self, "amend"):
            amended: Any = self.amend(body)
            if type(amended) is GeneratorType:
                amended = in_slices(amended)
                if type(amended) is CoroutineType:
                    # Its turns hold it until it is done.
                    asyncio.get_running_loop().create_task(self._answer_later(amended, is_large))
                    return
            body = amended
        self._send(body, is_large)

    async def _answer_later(self, amending: Coroutine[Any, Any, Message], is_large: bool) -> None:
        try:
            body = await self.timed(amending)
            if not self.peer.is_closed:
                self._send(body, is_large)
        except Exception as error:
            del self.amend
            self.peer.on_failed(self, error)

    def _send(self, body: Message | None, is_large: bool) -> None:
        toll = self.toll
        if (wait_ms := toll.charge(self, body)) > 0:
            if hasattr(body, "throttle_time_ms"):
                body.throttle_time_ms = wait_ms  # type: ignore[union-attr]
            self.peer.mute(wait_ms, toll.left_ms(*_who(self)))
        if body is None or is_large or has_elements(body, INLINE_ELEMENTS_MAX):
            super().answer(body, is_large=is_large)  # a thread encodes it, not the loop
            return
        toll.begin()
        self.on_drain = None
        self.parts = response_parts(self.api_key, self.version, self.correlation_id, body)
        toll.charge_sending()
        self.peer.on_answered(self)

    def amend_with(self, amend: Callable[[Any], Any]) -> None:
        """Complete the response before it is sent, and charge for it."""
        self.amend = amend

    def timed(self, work: Awaitable[Message]) -> Awaitable[Message]:
        """Return the work of a task, which is measured while it runs and not while it waits."""
        return _Timed(self.toll, cast("Coroutine[Any, Any, Message]", work))


class _Timed:
    """A coroutine whose steps are measured."""

    __slots__ = ("_toll", "_work")

    def __init__(self, toll: Toll, work: Coroutine[Any, Any, Message]) -> None:
        self._toll = toll
        self._work = work

    def __await__(self) -> Generator[Any, Any, Message]:
        toll, step, value = self._toll, self._work.send, None
        while True:
            toll.begin()
            try:
                waited_for = step(value)
            except StopIteration as done:
                result: Message = done.value
                return result
            finally:
                toll.end()
            step, value = self._work.send, None
            try:
                yield waited_for
            except BaseException as error:
                step, value = cast("Any", self._work.throw), cast("Any", error)


def _spend(budget: Budget | None, value: float, now_ms: int, counts: QuotaCounters) -> int:
    if budget is None:
        return 0
    wait_ms = budget.spend(value, now_ms)
    if wait_ms:
        _count(counts, wait_ms)
    return wait_ms


def _count(counts: QuotaCounters, wait_ms: int) -> None:
    counts.throttled += 1
    counts.throttled_ms += wait_ms


def _who(request: Request) -> tuple[str, str]:
    """Return the user and the client id that quotas are looked up by."""
    return request.peer.principal.partition(":")[2], request.client_id or ""


def claims_a_node(request: Request) -> bool:
    """Return whether a request says that it is a node's; anybody may say so."""
    if request.client_id is not None and request.client_id.startswith(INTERNAL_CLIENTS):
        return True
    if request.api_key != ApiKey.FETCH:
        return request.api_key in _OF_NODES
    body: FetchRequest = request.body
    return body.replica_id >= 0 or body.replica_state.replica_id >= 0


def _record_bytes(body: Any) -> int:
    if body is None:
        return 0
    rows: Iterable[Any] = (row for topic in body.responses for row in topic.partitions)
    return sum(len(row.records) + ROW_BYTES for row in rows if row.records)
