"""Every entry of seed 004 is proposed by a running node, and applying it twice is harmless.

The entries are taken from the log of a cluster that is used like any other: topics, producers,
tokens, voters, plans, a node that leaves. `ELSEWHERE` says which entries other tests propose.
"""

import asyncio
import copy
from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.client import Admin, Producer, TopicPartition
from headrace.client.outcomes import values_of
from headrace.errors import KafkaError
from headrace.metadata import applier
from headrace.metadata.applier import Applier
from headrace.metadata.ddl import CreateTopic, Ddl, decode_ddl
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    CatalogDdlAudited,
    CaTrustChange,
    Entry,
    JoinTokenTransition,
    NodeChange,
    RoutingChange,
    TopologyChange,
    decode_entry,
    encode_entry,
)
from headrace.metadata.image import Image
from headrace.metadata.state import ImageState
from headrace.testing.cluster import TestCluster
from tests.cluster.decommissioning import node_ports, stopping_when_told

SECRET: Final = b"0123456789abcdef0123456789abcdef"
ELSEWHERE: Final[dict[type, str]] = {
    CaTrustChange: "tests/cluster/test_node_tls.py, where nodes have certificates",
}
"""Entries that this test does not see, and whose business they are."""
LEAVING: Final = 3


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Use a cluster, and return the entries of its metadata log by index."""
    secret_file = tmp_path_factory.mktemp("secret") / "secret"
    secret_file.write_bytes(SECRET)
    seen: dict[int, bytes] = {}
    before = Applier._apply_one

    def note(self: Applier, index: int, data: bytes) -> applier.Outcome:
        seen[index] = data
        return before(self, index, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Applier, "_apply_one", note)
        settings = {"headrace.cluster.secret.file": str(secret_file)}
        with TestCluster(nodes=3, settings=settings) as cluster:
            _use(cluster, secret_file)
    return seen


def _use(cluster: TestCluster, secret_file: Path) -> None:
    cluster.create_topic("orders", partitions=4)
    cluster.run(_produce(cluster.bootstrap))
    assert _run(cluster, secret_file, "cluster", "token", "create", "--node-id", "7").exit_code == 0
    operator = cluster.nodes[1].node.cluster.operator
    lease = operator._placement
    departures = operator._departures
    assert lease is not None
    assert departures is not None

    async def contend() -> None:
        """Hold the lease for one plan, and let another one take over."""
        quorum = cluster.nodes[1].node.broker.quorum
        held = await lease.hold(quorum.image, 0)
        with pytest.raises(KafkaError, match="another rebalance"):
            await lease.hold(quorum.image, 0, takes_over=True)
        await lease.release(quorum.image, held.version)
        taken = await lease.hold(quorum.image, 0, takes_over=True)
        await lease.release(quorum.image, taken.version)
        await departures.start(quorum.image, cluster.nodes[LEAVING].node.node_id, is_dead=False)
        await departures.cancel(quorum.image, cluster.nodes[LEAVING].node.node_id)

    cluster.nodes[1].run(contend())
    cluster.kill(LEAVING)
    cluster.run(_move_and_cancel(cluster.bootstrap))
    cluster.restart(LEAVING)
    with stopping_when_told(cluster):
        arguments = ("cluster", "decommission", str(LEAVING), "--yes", "--bootstrap")
        done = _run(cluster, secret_file, *arguments, cluster.bootstrap)
        assert done.exit_code == 0, done.output


async def _move_and_cancel(bootstrap: str) -> None:
    """Begin a move to a node that is down, and undo it."""
    async with Admin(bootstrap) as admin:
        topic = await admin.describe_topic("orders")
        row = next(each for each in topic.partitions if LEAVING not in each.replicas)
        key = TopicPartition("orders", row.index)
        values_of(await admin.alter_reassignments({key: (LEAVING,)}))
        deadline = asyncio.get_running_loop().time() + 60
        while True:
            errors = await admin.cancel_reassignments([key])
            if errors[key] is None:
                return
            assert asyncio.get_running_loop().time() < deadline, errors
            await asyncio.sleep(0.05)


async def _produce(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        await (await producer.send("orders", b"one"))


def _run(cluster: TestCluster, secret_file: Path, *arguments: str) -> Result:
    options = ["--node", node_ports(cluster), "--secret-file", str(secret_file)]
    return CliRunner().invoke(headrace, [*arguments, *options])


def _flat(entry: Entry) -> list[Entry]:
    if isinstance(entry, Batch):
        return [entry, *(each for inner in entry.entries for each in _flat(inner))]
    return [entry]


def test_every_entry_is_proposed_by_a_node_that_runs(log: dict[int, bytes]) -> None:
    entries = [each for data in log.values() for each in _flat(decode_entry(data))]
    assert set(get_args(Entry)) - {type(each) for each in entries} == set(ELSEWHERE)
    changes = {type(each.change) for each in entries if isinstance(each, TopologyChange)}
    assert changes == set(get_args(NodeChange))
    assert any(isinstance(each, RoutingChange) for each in entries)
    assert any(isinstance(each, JoinTokenTransition) for each in entries)


def test_an_entry_that_is_applied_twice_changes_nothing(log: dict[int, bytes]) -> None:
    """Neither at the same index, nor if it was proposed again."""
    indexes = sorted(log)
    once, twice = Applier(Image()), Applier(Image())
    number = 0
    for index in indexes:
        once.apply([(index, log[index])])
        entry = decode_entry(log[index])
        for part in entry.entries if isinstance(entry, Batch) else (entry,):
            number += 1
            twice.apply([(number, encode_entry(part))])
            state = _state(twice)
            twice.apply([(number, encode_entry(part))])
            if not _counts_up(part):
                number += 1
                twice.apply([(number, encode_entry(part))])
            assert _state(twice) == state, part
    assert _state(once) == _state(twice)


def _state(applied: Applier) -> ImageState:
    """Return a copy of all that is known but how many entries there were."""
    state = applied.image.state
    return copy.deepcopy(msgspec.structs.replace(state, applied_index=0, catalog_entries_applied=0))


def _counts_up(entry: Entry) -> bool:
    """Return whether an entry is guarded by what its proposer expects, not by itself.

    A topic of the same name is refused, so that is not one of them. A change of a partition without
    an expected epoch begins a new one.
    """
    if not isinstance(entry, CatalogDdl | CatalogDdlAudited):
        return False
    ddl: Ddl = decode_ddl(entry.payload)
    return not isinstance(ddl, CreateTopic) and getattr(ddl, "expected_partition_epoch", 0) is None
