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
from headrace.testing.broker import DEFAULTS, TIER
from headrace.testing.host_loop import SimulatedRaftHost

if TYPE_CHECKING:
    from headrace.remote.store import ObjectStore
    from headrace.testing.hosts import Host

PORT: Final = 9092
NODE_PORT: Final = 9093
SECRET: Final = b"the secret of every simulated cluster"


async def start_node(
    host: "Host",
    settings: Mapping[str, str] | None = None,
    *,
    store: "ObjectStore | None" = None,
) -> Node:
    """Start a node; run this on the host. `settings` win over those of `TestBroker`."""
    node = make_node(host, settings, store=store)
    await node.start()
    return node


def make_node(
    host: "Host",
    settings: Mapping[str, str] | None = None,
    *,
    store: "ObjectStore | None" = None,
) -> Node:
    """Return a node that has not been started; call this on the host, too.

    With a `store` it has a tier, and that is where it is: several nodes share one.
    """
    loop = host.loop
    if loop is None:
        raise RuntimeError(f"{host} is down")
    overrides = {
        **DEFAULTS,
        **({} if store is None else TIER),
        "listeners": f"PLAINTEXT://{host.name}:{PORT}",
        "headrace.insecure": "true",  # the hosts are another machine only by name
        "headrace.node.listen": f"{host.name}:{NODE_PORT}",
        "headrace.node.tls": "false",  # a simulated network carries no TLS
        "log.dirs": "data",
        **(settings or {}),
    }
    return Node(
        load_settings(None, {}, overrides),
        disk=host.disk,
        bind=lambda address: host.simulation.network.bind(loop, address),
        raft_host=SimulatedRaftHost(loop),
        secret=SECRET,
        store=store,
    )
