"""Four nodes, each with a network and a small file system of its own, to which things happen."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from tests.crash.namespaces import CannotBuild, Networks, networks
from tests.process_cluster import PartitionState, Place, ProcessCluster, wait_for

COUNT = 4
REPLICAS = 3
"""One node of the four has no replica of a partition, so that it can be moved there."""
DISK_SIZE = "512m"
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Fewer partitions, or four nodes on two cores would have little else to do than to follow.
    **{
        f"{topic}.{name}": value
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for name, value in (("replication.factor", str(REPLICAS)), ("num.partitions", "6"))
    },
}


class Nodes(ProcessCluster):
    """Nodes 1 to 4. The output of a node's earlier lives is kept beside that of its last one."""

    def __init__(
        self, folder: Path, network: Networks, settings: dict[str, str], flaw: str = ""
    ) -> None:
        secret = folder / "secret"
        secret.write_text("of four nodes, as long as it must be\n")
        places = {
            number: Place(network.address(number), 9092, 9093, network.within(number))
            for number in range(1, COUNT + 1)
        }
        known = {**SETTINGS, **settings, "headrace.cluster.secret.file": str(secret)}
        super().__init__(folder, known, places=places, count=COUNT)
        self.network = network
        self.flaw = flaw
        """What is wrong with the nodes, one of `flawed_node`."""
        self.disks: list[Path] = []

    def mount_disks(self) -> None:
        """Give each node a file system of its own, where that is permitted."""
        for number in self.places:
            disk = self.folder / str(number)
            disk.mkdir()
            mount = ("mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(disk))
            if subprocess.run(mount, capture_output=True, check=False).returncode:
                return
            self.disks.append(disk)

    def close(self) -> None:
        super().close()
        for disk in self.disks:
            subprocess.run(("umount", "-l", str(disk)), check=True, capture_output=True)
        self.disks.clear()

    def launch(self, number: int) -> None:
        output = self.folder / f"{number}.out"
        if output.exists():
            with (self.folder / f"{number}.past.out").open("ab") as past:
                past.write(output.read_bytes())
        super().launch(number)

    def program_of(self, number: int) -> tuple[str, ...]:
        return ("tests.chaos.flawed_node", self.flaw) if self.flaw else ("headrace",)

    def others(self, number: int) -> tuple[int, ...]:
        return tuple(each for each in self.places if each != number)

    def partition(self, partition: TopicPartition) -> PartitionState:
        """Return what a node that runs says of a partition that has a leader."""
        found: list[PartitionState] = []

        def is_led() -> bool:
            for number in self.running():
                try:
                    state = self.partitions(number)[partition]
                except (HeadraceError, KeyError):
                    continue
                if state.leader in self.nodes:
                    found.append(state)
                    return True
            return False

        wait_for(is_led, f"a leader of {partition}")
        return found[0]

    def coordinator(self, key: str, key_type: int) -> int:
        """Return the coordinator of a group (type 0) or of a transactional id (type 1)."""
        body = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found: list[int] = []

        def is_found() -> bool:
            try:
                rows = self.ask(self.running()[0], body, FindCoordinatorResponse).coordinators
            except HeadraceError:
                return False
            found.extend(row.node_id for row in rows if not row.error_code)
            return bool(found)

        wait_for(is_found, f"the coordinator of {key}")
        return found[0]

    def is_missed(self, number: int) -> bool:
        """Tell whether another node knows that a node is fenced, or out of some ISR."""
        for other in self.others(number):
            try:
                is_fenced = self.view(other)["brokers"][number][2]
                states = self.partitions(other).values()
            except HeadraceError:
                continue
            if is_fenced or any(
                number in state.replicas and number not in state.isr for state in states
            ):
                return True
        return False

    def stop(self, topic: str) -> None:
        """Stop all nodes as an operator does, and compare the copies of a topic."""
        self.wait_until_in_sync()
        states = self.partitions(self.running()[0])
        for number in self.running():
            status = self.nodes.pop(number).stop()
            assert status == 0, f"node {number} ended with {status}"
        for partition, state in states.items():
            if partition.topic == topic:
                digests = {number: self.log_digest(number, partition) for number in state.replicas}
                assert len(set(digests.values())) == 1, f"copies of {partition} differ: {digests}"

    def assert_all_are_alive(self) -> None:
        assert set(self.nodes) == set(self.places)
        ended = {number: node.status for number, node in self.nodes.items() if node.status}
        assert not ended, f"nodes ended by themselves: {ended}"


@contextmanager
def nodes_in_networks(folder: Path, settings: dict[str, str], flaw: str = "") -> Iterator[Nodes]:
    """Yield nodes that agree on each other; skip the test where there can be no networks."""
    try:
        with networks(COUNT) as network:
            nodes = Nodes(folder, network, settings, flaw)
            try:
                nodes.mount_disks()
                with nodes:
                    nodes.wait_until_all_agree()
                    yield nodes
            finally:
                nodes.close()
    except CannotBuild as error:
        pytest.skip(str(error))
