"""A node's counters: plain numbers, which the metrics page formats."""

from bisect import bisect_left
from typing import Final

from headrace.ids import TopicName
from headrace.surroundings import clocks
from headrace.wire.apis import APIS

LATENCY_BOUNDS_NS: Final = tuple(
    int(milliseconds * 1_000_000)
    for milliseconds in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000)
)


class ApiCounters:
    """Requests of one API."""

    __slots__ = ("buckets", "errors", "requests", "total_ns")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        """Requests whose handler failed with an unexpected error."""
        self.total_ns = 0
        self.buckets = [0] * (len(LATENCY_BOUNDS_NS) + 1)
        """How many took at most each of the bounds; the last one, longer."""


QUOTAS: Final = (
    "produce",
    "fetch",
    "request",
    "controller_mutation",
    "connection",
    "connection_of_ip",
)


class QuotaCounters:
    """How often, and how long, one kind of quota held clients back."""

    __slots__ = ("throttled", "throttled_ms")

    def __init__(self) -> None:
        self.throttled = 0
        self.throttled_ms = 0


class TopicCounters:
    """Traffic of a topic's partitions that this node leads."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "fetch_requests",
        "messages_in",
        "produce_failures",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.produce_failures = 0
        self.fetch_requests = 0


class Counters:
    """Everything since the node started."""

    def __init__(self) -> None:
        self.monotonic_ns = clocks().monotonic_ns
        """How late it is, by a clock that never goes back."""
        self.apis: dict[int, ApiCounters] = {key: ApiCounters() for key in APIS}
        self.topics: dict[TopicName, TopicCounters] = {}
        self.quotas: dict[str, QuotaCounters] = {name: QuotaCounters() for name in QUOTAS}
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_idle_closed = 0
        self.connections_stuck_closed = 0
        """Closed because they read nothing while clients left too much unread."""
        self.handshakes_failed = 0
        """Connections that ended in the handshake of TLS, or were too many to authenticate."""
        self.authentications_succeeded = 0
        self.authentications_failed = 0
        self.requests_denied = 0
        """Requests, or parts of them, that a principal had no rights for."""
        self.undecodable_requests = 0
        self.replica_fetches = 0
        """Requests of this node's followers to their leaders."""
        self.replica_fetch_failures = 0
        """Those without a usable response."""
        self.replica_bytes_in = 0
        """Bytes of records that followers here appended."""
        self.replica_errors = 0
        """How often a follower had to pause for an error."""
        self.replica_truncations = 0
        """How often a follower cut off its log, or began it again."""
        self.isr_expansions = 0
        self.isr_shrinks = 0
        """Changes of ISRs that this node, as the leader, asked for and got."""
        self.loop_stalls = 0
        """How often the loop stood still for headrace.loop.stall.warn.ms or longer."""
        self.loop_stall_ns = 0
        """The total duration of these stalls."""
        self.loop_lag_ns = 0
        """How late the last tick of the loop was."""
        self.loop_lag_ns_max = 0

    def topic(self, name: TopicName) -> TopicCounters:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def answered(self, api_key: int, received_ns: int) -> None:
        """Count a request that has its response."""
        api = self.apis[api_key]
        took_ns = self.monotonic_ns() - received_ns
        api.requests += 1
        api.total_ns += took_ns
        api.buckets[bisect_left(LATENCY_BOUNDS_NS, took_ns)] += 1
