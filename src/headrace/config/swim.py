"""SWIM: the probes by which nodes notice that others cannot be reached."""

from typing import Final

from headrace.config.setting import int32

SWIM_PROBE_INTERVAL_MS: Final = int32(
    "headrace.swim.probe.interval.ms",
    500,
    "How long a period is in which a node probes others.",
    at_least=1,
)
SWIM_PROBE_TIMEOUT_MS: Final = int32(
    "headrace.swim.probe.timeout.ms",
    200,
    "How long a probe waits for an ack before other nodes are asked to probe.",
    at_least=1,
)
SWIM_PROBES_PER_PERIOD: Final = int32(
    "headrace.swim.probes.per.period",
    3,
    "How many nodes are probed at the same time in a period.",
    at_least=1,
)
SWIM_INDIRECT_PROBES: Final = int32(
    "headrace.swim.indirect.probes",
    3,
    "How many other nodes are asked to probe one that does not respond.",
    at_least=0,
)
SWIM_SUSPICION_MULTIPLIER: Final = int32(
    "headrace.swim.suspicion.multiplier",
    4,
    "The shortest suspicion of a node, in periods; it grows with the logarithm of the "
    "cluster's size.",
    at_least=1,
)
SWIM_SUSPICION_MAX_MULTIPLIER: Final = int32(
    "headrace.swim.suspicion.max.multiplier",
    6,
    "How many times longer a suspicion lasts that no other node confirms.",
    at_least=1,
)
SWIM_SUSPICION_CONFIRMATIONS: Final = int32(
    "headrace.swim.suspicion.confirmations",
    2,
    "How many other nodes have to confirm a suspicion to make it as short as it can be.",
    at_least=0,
)
SWIM_HEALTH_SCORE_MAX: Final = int32(
    "headrace.swim.health.score.max",
    8,
    "The worst score of a node's own health: its periods are up to so many times longer.",
    at_least=0,
)
SWIM_GOSSIP_INTERVAL_MS: Final = int32(
    "headrace.swim.gossip.interval.ms",
    200,
    "How often news is sent to a few nodes besides what is sent along with probes.",
    at_least=1,
)
SWIM_GOSSIP_MEMBERS: Final = int32(
    "headrace.swim.gossip.members",
    3,
    "How many nodes get news at a time.",
    at_least=1,
)
SWIM_GOSSIP_MULTIPLIER: Final = int32(
    "headrace.swim.gossip.multiplier",
    4,
    "How often news is repeated: this times the logarithm of the cluster's size.",
    at_least=1,
)
SWIM_PIGGYBACK_BYTES_MAX: Final = int32(
    "headrace.swim.piggyback.bytes.max",
    400,
    "How many bytes of news are sent along with a probe.",
    at_least=0,
)
SWIM_DATAGRAM_BYTES_MAX: Final = int32(
    "headrace.swim.datagram.bytes.max",
    1_200,
    "The size limit of a datagram.",
    at_least=1,
)
SWIM_SYNC_INTERVAL_MS: Final = int32(
    "headrace.swim.sync.interval.ms",
    10_000,
    "How often two nodes exchange all that they know of others.",
    at_least=1,
)
SWIM_FORGET_AFTER_MS: Final = int32(
    "headrace.swim.forget.after.ms",
    600_000,
    "How long a node that is gone is remembered.",
    at_least=1,
)
SWIM_RELAYS_MAX: Final = int32(
    "headrace.swim.relays.max",
    64,
    "How many probes a node runs for others at a time.",
    at_least=1,
)
SWIM_INBOX_DATAGRAMS_MAX: Final = int32(
    "headrace.swim.inbox.datagrams.max",
    512,
    "How many received datagrams may wait; more are dropped.",
    at_least=1,
)
SWIM_DATAGRAMS_PER_TURN: Final = int32(
    "headrace.swim.datagrams.per.turn",
    16,
    "How many datagrams are handled before other work has a turn.",
    at_least=1,
)
