"""Replicated clusters to which one kind of thing happens, by seed, where the common world has less.

Each plays a part of what `replication_world` plays, more often.
"""

from headrace.ids import TopicName
from headrace.metadata.state import NO_LEADER
from tests.sim.cluster_world import Machine, Trouble
from tests.sim.replication_clients import ORDERS
from tests.sim.replication_world import INTERNAL, World


class Coordinators(World):
    """Leaders of internal topics come and go while transactions and groups are in the middle."""

    KINDS: tuple[str, ...] | None = ("transactions", "pipeline")
    TROUBLES_A_SECOND = 1.2
    REQUESTS_A_SECOND = 10.0
    TOPICS: tuple[str, ...] = INTERNAL[:2]

    def _target(self) -> Machine:
        if self.nodes:
            topic = self._image().topic(TopicName(self.random.choice(self.TOPICS)))
            if topic is not None:
                leader = self.random.choice(topic.partitions).leader
                if leader != NO_LEADER:
                    return self.machines[leader - 1]
        return super()._target()

    def _troubles(self) -> dict[Trouble, int]:
        return {
            self._kill: 4,
            self._stop: 4,
            self._pause: 4,
            self._isolate: 6,
            self._cut_followers: 4,
            self._cut_from_controller: 4,
            self._reset: 4,
        }


class Leaders(Coordinators):
    """Leaders of the clients' partitions are cut off, killed and elected again and again."""

    KINDS = ("producer", "raw", "look")
    TOPICS = (ORDERS,)
