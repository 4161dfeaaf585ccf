"""Quotas against a straightforward reference: every sample in a ring, every level in turn."""

from dataclasses import dataclass, field
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headrace.security.quotas.entities import quota_entity
from headrace.security.quotas.limits import ClientLimits
from headrace.security.quotas.meters import ClientQuotas
from headrace.security.quotas.rates import SampledRate, TokenBucket, Windows

windows = st.builds(Windows, st.integers(1, 12), st.sampled_from([1, 7, 1000, 5000]))
NAMES = ("ann", "bob")


@dataclass
class Sample:
    begun_ms: int
    last_ms: int
    value: float = 0.0


@dataclass
class Ring:
    """Samples that are used again one after the other, one more than there are windows."""

    windows: Windows
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        if now_ms - self.samples[self.current].begun_ms >= self.windows.size_ms:
            self.current = (self.current + 1) % (self.windows.count + 1)
            if self.current == len(self.samples):
                self.samples.append(Sample(now_ms, now_ms))
            self.samples[self.current] = Sample(now_ms, now_ms)
        self.samples[self.current].value += value
        self.samples[self.current].last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Return the rate, and the time that it is measured over."""
        live = [each for each in self.samples if now_ms - each.last_ms < self.windows.span_ms] or [
            Sample(now_ms, now_ms)
        ]
        elapsed_ms = now_ms - min(each.begun_ms for each in live)
        full = elapsed_ms // self.windows.size_ms
        if full < self.windows.count - 1:
            elapsed_ms += (self.windows.count - 1 - full) * self.windows.size_ms
        elapsed_ms = max(elapsed_ms, self.windows.size_ms)
        return sum(each.value for each in live) * 1000 / elapsed_ms, elapsed_ms


@given(
    windows, st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 10**9))), st.integers(1, 10**6)
)
def test_rates_and_waits_are_those_of_the_ring(
    shape: Windows, steps: list[tuple[int, int]], limit: int
) -> None:
    rate, ring, now_ms = SampledRate(shape), Ring(shape), 1_000_000
    for pause_ms, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        ring.record(value, now_ms)
        measured, measured_ms = ring.measure(now_ms)
        assert rate.per_second(now_ms) == measured
        excess = (measured - limit) / limit * measured_ms
        assert rate.wait_ms(limit, now_ms) == min(max(int(excess + 0.5), 0), 2**31 - 1)


@given(windows, st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 100))), st.integers(1, 50))
def test_a_bucket_of_tokens_is_never_fuller_than_its_windows(
    shape: Windows, steps: list[tuple[int, int]], limit: int
) -> None:
    bucket = TokenBucket(shape)
    most = limit * shape.span_ms / 1000
    tokens, now_ms = most, 0
    for pause_ms, value in steps:
        now_ms += pause_ms
        tokens = min(most, tokens + limit * pause_ms / 1000) - value
        bucket.record(value, limit, now_ms)
        wait_ms = bucket.wait_ms(limit, now_ms)
        assert abs(wait_ms - max(-tokens / limit * 1000, 0)) <= 1


ENTITIES = [
    quota_entity(
        [(kind, name) for kind, name in (("user", user), ("client-id", client)) if name != ""]
    )
    for user, client in product((*NAMES, None, ""), (*NAMES, None, ""))
    if (user, client) != ("", "")
]


def reference_limit(
    limits: dict[tuple[tuple[str, str | None], ...], float], user: str, client: str
) -> float | None:
    """The level of the user decides first: own, default, none; then that of the client id."""
    for user_part in ([("user", user)], [("user", None)], []):
        for client_part in ([("client-id", client)], [("client-id", None)], []):
            found = limits.get(quota_entity([*user_part, *client_part]))
            if found is not None:
                return found
    return None


@given(st.lists(st.tuples(st.sampled_from(ENTITIES), st.none() | st.integers(1, 99))))
def test_the_limit_of_each_client_is_the_most_specific_after_any_changes(
    changes: list[tuple[tuple[tuple[str, str | None], ...], int | None]],
) -> None:
    made = ClientQuotas(Windows(11, 1000), Windows(11, 1000), clients_max=100)
    limits: dict[tuple[tuple[str, str | None], ...], float] = {}
    for entity, value in changes:
        if value is None:
            limits.pop(entity, None)
            made.change(entity, {})
        else:
            limits[entity] = value
            made.change(entity, {"producer_byte_rate": float(value)})
        for user, client in product(("ann", "bob", "cid"), repeat=2):
            budget = made.budgets(user, client, 0).produce
            assert (budget and budget.limit) == reference_limit(limits, user, client)
    again = ClientQuotas(Windows(11, 1000), Windows(11, 1000), clients_max=100)
    whole = ClientLimits()
    for entity, limit in limits.items():
        whole.change(entity, {"producer_byte_rate": limit})
    again.replace(whole)
    assert again.is_active == made.is_active == bool(limits)
