"""A node on a host of a simulation: the node that users run, on another loop and another disk.

    node = await host.run(start_node(host, {"num.partitions": "3"}))
    ...
    await host.run(node.stop())     # or host.crash()

Its first listener is at port 9092 of the host, its port for other nodes is 9093.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.config import load_settings
from headrace.node.node import Node
from headrace.testing.broker import DEFAULTS
from headrace.testing.host_loop import SimulatedRaftHost

if TYPE_CHECKING:
    from headrace.testing.hosts import Host

PORT: Final = 9092
NODE_PORT: Final = 9093
SECRET: Final = b"the secret of every simulated cluster"


async def start_node(host: "Host", settings: Mapping[str, str] | None = None) -> Node:
    """Start a node; run this on the host. `settings` win over those of `TestBroker`."""
    node = make_node(host, settings)
    await node.start()
    return node


def make_node(host: "Host", settings: Mapping[str, str] | None = None) -> Node:
    """Return a node that has not been started; call this on the host, too."""
    loop = host.loop
    if loop is None:
        raise RuntimeError(f"{host} is down")
    overrides = {
        **DEFAULTS,
        "listeners": f"PLAINTEXT://{host.name}:{PORT}",
        "headrace.node.listen": f"{host.name}:{NODE_PORT}",
        "log.dirs": "data",
        **(settings or {}),
    }
    return Node(
        load_settings(None, {}, overrides),
        disk=host.disk,
        bind=lambda address: host.simulation.network.bind(loop, address),
        raft_host=SimulatedRaftHost(loop),
        secret=SECRET,
    )
