"""Who leads partitions: preferred replicas from time to time, unclean leaders where allowed."""

from typing import Final

import msgspec

from headrace.config.setting import boolean, int64

AUTO_LEADER_REBALANCE_ENABLE: Final = boolean(
    "auto.leader.rebalance.enable",
    True,
    "Whether the controller lets preferred replicas lead again, from time to time.",
)
CONTROLLED_SHUTDOWN_ENABLE: Final = boolean(
    "controlled.shutdown.enable",
    True,
    "Whether a node that stops hands over what it leads first.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = int64(
    "leader.imbalance.check.interval.seconds",
    300,
    "How often the controller looks for partitions that their preferred replica does not lead.",
    at_least=1,
)
UNCLEAN_LEADER_ELECTION_INTERVAL_MS: Final = msgspec.structs.replace(
    int64(
        "unclean.leader.election.interval.ms",
        300_000,
        "How often the controller looks for partitions that need an unclean leader.",
        at_least=1,
    ),
    is_internal=True,
)
