"""What each client has used, against what it may. Pure.

Clients that share a limit share a meter. Meters that nobody has used for an hour are forgotten, as
in Kafka. Their number is bounded: once there are too many, new clients share one meter for each
limit, so that nobody gets around a quota, or uses up memory, with ever new client ids.
"""

from collections.abc import Generator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    OF_CLIENTS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from headrace.security.quotas.limits import ClientLimits
from headrace.security.quotas.rates import SampledRate, TokenBucket, Windows

IDLE_MS_MAX: Final = 3600 * 1000
"""After how long a meter that nobody uses is forgotten."""
LOOKS_AT_ONCE: Final = 2000
"""How many meters are looked at in one turn."""
NAME_LENGTH_MAX: Final = 64
"""Longer names are kept as their digest: a client id may have 32767 characters."""
_OTHERS: Final = "(others)"


class _Meter:
    """What has been used of one limit."""

    __slots__ = ("bucket", "rate", "used_ms")

    def __init__(self, windows: Windows, now_ms: int, *, has_tokens: bool) -> None:
        self.used_ms = now_ms
        self.rate = SampledRate(windows)
        self.bucket = TokenBucket(windows) if has_tokens else None


class Budget:
    """What a client may use of one thing, and has used of it."""

    __slots__ = ("_meter", "_wait_ms_max", "_windows", "limit")

    def __init__(
        self, meter: _Meter, limit: float, windows: Windows, wait_ms_max: int | None
    ) -> None:
        self._meter = meter
        self._windows = windows
        self._wait_ms_max = wait_ms_max
        self.limit = limit

    @property
    def most_at_once(self) -> float:
        """What may be used at once by a client that has used nothing before."""
        return self.limit * (self._windows.count - 1) * self._windows.size_ms / 1000

    def spend(self, value: float, now_ms: int) -> int:
        """Count what is used; return how long the client is to be held back for it, in ms."""
        self._meter.used_ms = now_ms
        self._meter.rate.record(value, now_ms)
        return self.wait_ms(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return how long it takes until what was used is no more than the limit allows, in ms."""
        wait_ms = self._meter.rate.wait_ms(self.limit, now_ms)
        return wait_ms if self._wait_ms_max is None else min(wait_ms, self._wait_ms_max)

    def add(self, value: float, now_ms: int) -> None:
        """Count what is used, or take it back, without holding the client back for it now."""
        self._meter.used_ms = now_ms
        self._meter.rate.record(value, now_ms)

    def is_unused(self, now_ms: int) -> bool:
        """Return whether nothing counts against the limit at present."""
        return self._meter.rate.per_second(now_ms) <= 0

    def debt_ms(self, now_ms: int) -> int:
        """Return how long a client has to wait for tokens; 0 if it may take some."""
        bucket = self._meter.bucket
        assert bucket is not None, "only changes of metadata are limited by tokens"
        self._meter.used_ms = now_ms
        return bucket.wait_ms(self.limit, now_ms)

    def take_tokens(self, value: float, now_ms: int) -> int:
        """Take tokens, whether they are there or not; return how long that has to be waited for."""
        bucket = self._meter.bucket
        assert bucket is not None, "only changes of metadata are limited by tokens"
        self._meter.used_ms = now_ms
        bucket.record(value, self.limit, now_ms)
        return bucket.wait_ms(self.limit, now_ms)


class Budgets(NamedTuple):
    """What one client may use; None where it is not limited."""

    produce: Budget | None
    fetch: Budget | None
    request: Budget | None
    mutation: Budget | None

    def wait_ms(self, now_ms: int) -> int:
        """Return how long it takes until nothing is used up."""
        waits = [0 if each is None else each.wait_ms(now_ms) for each in self[:3]]
        return max(*waits, 0 if self.mutation is None else self.mutation.debt_ms(now_ms))


UNLIMITED: Final = Budgets(None, None, None, None)


class ClientQuotas:
    """The quotas of users and client ids, and what they have used."""

    def __init__(self, windows: Windows, token_windows: Windows, *, clients_max: int) -> None:
        """`token_windows` are those of changes of metadata."""
        self._windows = windows
        self._token_windows = token_windows
        self._meters_max = clients_max * len(OF_CLIENTS)
        self._clients_max = clients_max
        self._limits = ClientLimits()
        self.generation = 0
        """Which changes of quotas what `budgets` returns goes by."""
        self._meters: dict[tuple[str, str, str], _Meter] = {}
        self._budgets: dict[tuple[str, str], Budgets] = {}

    @property
    def is_active(self) -> bool:
        """Whether there is any limit at all."""
        return not self._limits.is_empty

    @property
    def meter_count(self) -> int:
        return len(self._meters)

    def change(self, entity: QuotaEntity, limits: Mapping[str, float]) -> None:
        """Put what an entity has now in place of what it had; what was used still counts."""
        if any(kind == IP for kind, _ in entity):
            return
        self.generation += 1
        self._limits.change(entity, limits)
        self._budgets.clear()
        if self._limits.is_empty:
            self._meters.clear()

    def replace(self, limits: ClientLimits) -> None:
        """Put all limits in place of those there were; what was used still counts."""
        self._limits = limits
        self.generation += 1
        self._budgets.clear()
        if limits.is_empty:
            self._meters.clear()

    def budgets(self, user: str, client_id: str, now_ms: int) -> Budgets:
        """Return what a client may use."""
        who = _short(user), _short(client_id)
        found = self._budgets.get(who)
        if found is None:
            found = self._find(user, client_id, now_ms)
            if len(self._budgets) >= self._clients_max:
                self._budgets.clear()
            self._budgets[who] = found
        return found

    def expire(self, now_ms: int) -> Generator[None, None, int]:
        """Forget meters that were not used for an hour; return how many.

        It yields now and then: there may be tens of thousands, and others are to have their turn.
        """
        count = fresh = 0
        for number, key in enumerate(tuple(self._meters), 1):
            meter = self._meters.get(key)
            if meter is not None and now_ms - meter.used_ms > IDLE_MS_MAX:
                del self._meters[key]
                fresh += 1
            if number % LOOKS_AT_ONCE == 0:
                count, fresh = count + self._forget(fresh), 0
                yield
        return count + self._forget(fresh)

    def _forget(self, meter_count: int) -> int:
        """Forget the budgets if meters are gone: what is used of those would count nowhere."""
        if meter_count:
            self._budgets.clear()
        return meter_count

    def _find(self, user: str, client_id: str, now_ms: int) -> Budgets:
        found = Budgets(
            self._budget(PRODUCER_BYTE_RATE, user, client_id, now_ms),
            self._budget(CONSUMER_BYTE_RATE, user, client_id, now_ms),
            self._budget(REQUEST_PERCENTAGE, user, client_id, now_ms),
            self._budget(CONTROLLER_MUTATION_RATE, user, client_id, now_ms),
        )
        return UNLIMITED if found == UNLIMITED else found

    def _budget(self, key: str, user: str, client_id: str, now_ms: int) -> Budget | None:
        found = self._limits.find(key, user, client_id)
        if found is None:
            return None
        has_tokens = key == CONTROLLER_MUTATION_RATE
        windows = self._token_windows if has_tokens else self._windows
        name = key, _short(found.user), _short(found.client_id)
        if name not in self._meters and len(self._meters) >= self._meters_max:
            name = key, _OTHERS, str(found.limit)
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = _Meter(windows, now_ms, has_tokens=has_tokens)
        meter.used_ms = now_ms
        # What a request takes of the loop is known only afterwards, and may be a lot: as in
        # Kafka, a client waits for one window at most.
        wait_ms_max = windows.size_ms if key == REQUEST_PERCENTAGE else None
        return Budget(meter, found.limit, windows, wait_ms_max)


def _short(name: str) -> str:
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest() + "..."
