"""The features of a cluster (KIP-584, KIP-1022): what this software knows, and where a new one is.

A node registers with the ranges, a new cluster is given the levels, and both are those of a
freshly formatted Apache Kafka 4.3.1: clients and tools decide by them. One is Headrace's own, by
which nodes of two releases get on (`levels`). The levels that hold are in the image
(`Image.feature_level`); UpdateFeatures changes them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
HEADRACE_VERSION: Final = "headrace.version"
LEVEL: Final = 1
"""The highest level of headrace.version, which this software has: see `levels`."""


class Levels(NamedTuple):
    """The levels of a feature that this software can work at, both included."""

    minimum: int
    maximum: int


SUPPORTED: Final[Mapping[str, Levels]] = {
    GROUP_VERSION: Levels(0, 1),
    KRAFT_VERSION: Levels(0, 1),
    METADATA_VERSION: Levels(7, 30),
    SHARE_VERSION: Levels(0, 1),
    STREAMS_VERSION: Levels(0, 1),
    TRANSACTION_VERSION: Levels(0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: Levels(0, 1),
    HEADRACE_VERSION: Levels(0, LEVEL),
}
BOOTSTRAP_LEVELS: Final[Mapping[str, int]] = {
    name: levels.maximum for name, levels in SUPPORTED.items()
}
"""What a new cluster is finalized at."""
NEVER_LOWERED: Final = (KRAFT_VERSION, METADATA_VERSION, HEADRACE_VERSION)
"""What is written at these levels cannot be read at lower ones."""
