"""`headrace cluster`: the nodes, the metadata quorum, and nodes that are gone for good."""

import click

from headrace.cli.options import CommandGroup, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, make_sure
from headrace.cli.streams import say
from headrace.client.admin import Admin
from headrace.client.errors import UnsupportedApi
from headrace.client.nodes import ClusterDescription, QuorumDescription
from headrace.errors import KafkaError


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Inspect the cluster as a whole, and remove nodes from it."""


@cluster.command()
@json_option
@bootstrap_option
def describe(as_json: bool, bootstrap: str) -> None:
    """Show nodes, the metadata quorum and features."""

    async def work() -> tuple[ClusterDescription, QuorumDescription | None]:
        async with Admin(bootstrap) as admin:
            described = await admin.describe_cluster()
            try:
                return described, await admin.describe_quorum()
            except (KafkaError, UnsupportedApi):
                return described, None  # no permission, or a cluster without one

    described, quorum = complete(work())
    if as_json:
        print_json(_json(described, quorum))
        return
    say(f"cluster {described.cluster_id}, controller {described.controller_id}")
    print_table(
        ("node", "address", "rack"),
        [(node.node_id, str(node.address), node.rack) for node in described.nodes],
    )
    if quorum is not None:
        members = [("voter", member) for member in quorum.voters]
        members += [("observer", member) for member in quorum.observers]
        print_table(
            ("node", "role", "log end", "lag"),
            [
                (
                    member.node_id,
                    "leader" if member.node_id == quorum.leader_id else role,
                    member.log_end_offset,
                    max(quorum.high_watermark - member.log_end_offset, 0),
                )
                for role, member in members
            ],
            title=f"metadata quorum, epoch {quorum.leader_epoch}, committed up to "
            f"{quorum.high_watermark}",
        )
    if described.features:
        print_table(("feature", "level"), list(described.features.items()))


@cluster.command()
@click.argument("node", type=click.IntRange(min=0))
@yes_option
@json_option
@bootstrap_option
def remove(node: int, *, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Remove a node that is down from the cluster, with its vote on the metadata log.

    It must not have replicas. A new node may join under its id, with an empty data folder; the one
    that was removed cannot be used again.
    """
    make_sure(f"Remove node {node} from the cluster for good?", is_sure=yes)

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.unregister_broker(node)

    complete(work())
    if as_json:
        print_json({"node": node, "removed": True})
    else:
        say(f"node {node} is removed")


def _json(described: ClusterDescription, quorum: QuorumDescription | None) -> dict[str, object]:
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "nodes": [
            {
                "node": node.node_id,
                "host": node.address.host,
                "port": node.address.port,
                "rack": node.rack,
            }
            for node in described.nodes
        ],
        "quorum": quorum,
        "features": described.features,
    }
