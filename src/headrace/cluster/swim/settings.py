"""The settings of a member: times, and the bound of everything that could grow."""

from math import ceil, log, log10

import msgspec

from headrace import config
from headrace.cluster.swim.sealing import SEAL_BYTES_MAX
from headrace.config import InvalidSetting, Settings


class SwimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a member does when. Every node of a cluster should have the same values."""

    probe_interval_ms: int = config.SWIM_PROBE_INTERVAL_MS.default
    """How long a period is; it takes up to `health_score_max + 1` times as long at a node that
    is not well itself."""
    probe_timeout_ms: int = config.SWIM_PROBE_TIMEOUT_MS.default
    """How long a probe waits for an ack before it asks helpers. The rest of the period is for their
    responses."""
    probes_per_period: int = config.SWIM_PROBES_PER_PERIOD.default
    """How many members are probed side by side in a period."""
    indirect_probes: int = config.SWIM_INDIRECT_PROBES.default
    """How many helpers are asked to reach a member that does not respond."""
    suspicion_multiplier: int = config.SWIM_SUSPICION_MULTIPLIER.default
    """The shortest suspicion, in periods; it grows with the logarithm of the cluster's size."""
    suspicion_max_multiplier: int = config.SWIM_SUSPICION_MAX_MULTIPLIER.default
    """How many times longer an unconfirmed suspicion lasts."""
    suspicion_confirmations: int = config.SWIM_SUSPICION_CONFIRMATIONS.default
    """How many others have to confirm a suspicion to make it as short as it can be."""
    health_score_max: int = config.SWIM_HEALTH_SCORE_MAX.default
    """The worst score of a node's own health."""
    gossip_interval_ms: int = config.SWIM_GOSSIP_INTERVAL_MS.default
    """How often news is told to a few members beside what goes along with probes: so a node that
    probes slowly, as it is not well, still refutes in time."""
    gossip_members: int = config.SWIM_GOSSIP_MEMBERS.default
    """How many members get news at a time."""
    gossip_multiplier: int = config.SWIM_GOSSIP_MULTIPLIER.default
    """A claim is sent `gossip_multiplier * ln(n + 1)` times by every node that learns it."""
    piggyback_bytes_max: int = config.SWIM_PIGGYBACK_BYTES_MAX.default
    """How many bytes of claims go along with a message."""
    datagram_bytes_max: int = config.SWIM_DATAGRAM_BYTES_MAX.default
    """How large a datagram is at most, seal and all."""
    sync_interval_ms: int = config.SWIM_SYNC_INTERVAL_MS.default
    """How often two nodes compare all that they know, as far as it fits a datagram."""
    forget_after_ms: int = config.SWIM_FORGET_AFTER_MS.default
    """How long a member that is gone is remembered; then it is no longer gossiped about."""
    relays_max: int = config.SWIM_RELAYS_MAX.default
    """How many indirect probes a node runs for others at a time."""
    inbox_datagrams_max: int = config.SWIM_INBOX_DATAGRAMS_MAX.default
    """How many datagrams wait to be read; more are dropped, as any datagram may be."""
    datagrams_per_turn: int = config.SWIM_DATAGRAMS_PER_TURN.default
    """How many datagrams are handled before others on the loop have a turn."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            least = 0 if name in _MAY_BE_ZERO else 1
            if getattr(self, name) < least:
                raise _invalid(name, getattr(self, name), f"must be at least {least}")
        if self.probe_timeout_ms * 2 > self.probe_interval_ms:
            raise _invalid(
                "probe_timeout_ms",
                self.probe_timeout_ms,
                "must be at most half of headrace.swim.probe.interval.ms="
                f"{self.probe_interval_ms}: indirect probes need the other half",
            )
        if not SEAL_BYTES_MAX + 128 <= self.datagram_bytes_max <= 65_507:
            raise _invalid(
                "datagram_bytes_max",
                self.datagram_bytes_max,
                f"must be from {SEAL_BYTES_MAX + 128} to 65507",
            )
        if self.piggyback_bytes_max > self.datagram_bytes_max - SEAL_BYTES_MAX - 64:
            raise _invalid(
                "piggyback_bytes_max",
                self.piggyback_bytes_max,
                "does not fit into headrace.swim.datagram.bytes.max="
                f"{self.datagram_bytes_max} beside a message and its seal",
            )

    @property
    def relay_timeout_ms(self) -> int:
        """How long a helper waits before it says that it got no answer: its word has to be back
        before the period of the node that asked is over."""
        return (self.probe_interval_ms - self.probe_timeout_ms) * 2 // 3

    def gossip_limit(self, size: int) -> int:
        """Return how often a claim is sent in a cluster of `size` nodes."""
        return max(1, ceil(self.gossip_multiplier * log(size + 1)))

    def suspicion_ms(self, size: int, wanted: int, confirmations: int) -> int:
        """Return how long a suspicion lasts with so many confirmations of those `wanted`.

        Each one shortens it, the first ones most (Lifeguard's LHA-Suspicion).
        """
        least_ms = (
            self.suspicion_multiplier * max(1.0, log10(max(1, size))) * (self.probe_interval_ms)
        )
        if confirmations >= wanted:
            return round(least_ms)
        most_ms = least_ms * self.suspicion_max_multiplier
        part = log(confirmations + 1) / log(wanted + 1)
        return round(max(least_ms, most_ms - (most_ms - least_ms) * part))


def swim_settings(settings: Settings) -> SwimSettings:
    """Return what the settings of a node say of SWIM; InvalidSetting if they do not fit."""
    return SwimSettings(
        probe_interval_ms=settings[config.SWIM_PROBE_INTERVAL_MS],
        probe_timeout_ms=settings[config.SWIM_PROBE_TIMEOUT_MS],
        probes_per_period=settings[config.SWIM_PROBES_PER_PERIOD],
        indirect_probes=settings[config.SWIM_INDIRECT_PROBES],
        suspicion_multiplier=settings[config.SWIM_SUSPICION_MULTIPLIER],
        suspicion_max_multiplier=settings[config.SWIM_SUSPICION_MAX_MULTIPLIER],
        suspicion_confirmations=settings[config.SWIM_SUSPICION_CONFIRMATIONS],
        health_score_max=settings[config.SWIM_HEALTH_SCORE_MAX],
        gossip_interval_ms=settings[config.SWIM_GOSSIP_INTERVAL_MS],
        gossip_members=settings[config.SWIM_GOSSIP_MEMBERS],
        gossip_multiplier=settings[config.SWIM_GOSSIP_MULTIPLIER],
        piggyback_bytes_max=settings[config.SWIM_PIGGYBACK_BYTES_MAX],
        datagram_bytes_max=settings[config.SWIM_DATAGRAM_BYTES_MAX],
        sync_interval_ms=settings[config.SWIM_SYNC_INTERVAL_MS],
        forget_after_ms=settings[config.SWIM_FORGET_AFTER_MS],
        relays_max=settings[config.SWIM_RELAYS_MAX],
        inbox_datagrams_max=settings[config.SWIM_INBOX_DATAGRAMS_MAX],
        datagrams_per_turn=settings[config.SWIM_DATAGRAMS_PER_TURN],
    )


_MAY_BE_ZERO = frozenset(
    ("indirect_probes", "suspicion_confirmations", "health_score_max", "piggyback_bytes_max")
)


def _invalid(name: str, value: int, reason: str) -> InvalidSetting:
    return InvalidSetting(f"headrace.swim.{name.replace('_', '.')}={value}: {reason}")
