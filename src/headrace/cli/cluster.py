"""`headrace cluster`: nodes, their quorum, moves, join tokens, and nodes that are gone for good."""

from pathlib import Path

import click
from click.core import ParameterSource

from headrace.cli.client_config import client_settings
from headrace.cli.cluster_backup import backup, restore
from headrace.cli.cluster_ca import ca
from headrace.cli.decommission import decommission
from headrace.cli.moves import moves
from headrace.cli.node_calls import (
    NodeCalls,
    Views,
    ask_all,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.node_views import cluster_id, link_rows, print_views, view_rows
from headrace.cli.options import (
    CommandGroup,
    FilePath,
    bootstrap_option,
    json_option,
    yes_option,
)
from headrace.cli.output import print_json, print_table
from headrace.cli.passwords import password_option, read_password
from headrace.cli.rebalance import rebalance
from headrace.cli.running import complete, make_sure
from headrace.cli.streams import say
from headrace.cli.tokens import token
from headrace.cli.upgrade import upgrade
from headrace.client.admin import Admin
from headrace.client.errors import NotReachable, UnsupportedApi
from headrace.client.nodes import ClusterDescription, QuorumDescription
from headrace.errors import KafkaError


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Inspect the cluster as a whole, let nodes in, and remove them."""


cluster.add_command(moves)
cluster.add_command(token)
cluster.add_command(ca)
cluster.add_command(backup)
cluster.add_command(restore)
cluster.add_command(decommission)
cluster.add_command(rebalance)
cluster.add_command(upgrade)


@cluster.command("init-admin")
@click.argument("user", metavar="USER", help="The name, without User: before it.")
@click.option(
    "--data",
    type=FilePath(),
    required=True,
    help="The data folder of a node (log.dirs), which need not exist yet.",
)
@password_option
@json_option
def init_admin(user: str, *, data: Path, password_file: Path | None, as_json: bool) -> None:
    """Make the first user, or give one another password, with the next start of a node.

    Writes a file into the node's folder, from which it takes the user into the metadata log. Name
    the user in super.users if the cluster has an authorizer.
    """
    from headrace.node.first_users import write_first_user  # noqa: PLC0415  only here

    path = write_first_user(data, user, read_password(password_file, user))
    if as_json:
        print_json({"user": user, "file": str(path)})
    else:
        say(f"the node takes user {user} from {path} when it starts next")


@cluster.command()
@json_option
@bootstrap_option
@node_option
@secret_option
@click.pass_context
def describe(
    ctx: click.Context, *, as_json: bool, bootstrap: str, node: str, secret_file: Path | None
) -> None:
    """Show nodes, the metadata quorum and features; by node ports also sessions and links.

    Nodes that cannot be asked are shown with the reason. With --node it works while no node serves
    clients.
    """
    is_node_given = ctx.get_parameter_source("node") is not ParameterSource.DEFAULT

    async def ask_clients() -> tuple[ClusterDescription, QuorumDescription | None]:
        async with Admin(bootstrap, client_settings()) as admin:
            described = await admin.describe_cluster()
            try:
                return described, await admin.describe_quorum()
            except (KafkaError, UnsupportedApi):
                return described, None  # no permission, or a cluster without one

    async def ask_nodes() -> Views:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            return await ask_all(calls, parse_nodes(node))

    views: Views | None = None
    try:
        views = complete(ask_nodes())
    except (NotReachable, KafkaError):
        if is_node_given:
            raise
    try:
        described, quorum = complete(ask_clients())
    except (NotReachable, KafkaError):
        if not is_node_given or views is None:
            raise
        _print(None, None, views, as_json=as_json)
        return
    if not is_node_given and views is not None and cluster_id(views) != described.cluster_id:
        views = None  # another cluster has the default node port of this machine
    _print(described, quorum, views, as_json=as_json)


def _print(
    described: ClusterDescription | None,
    quorum: QuorumDescription | None,
    views: Views | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        document = {} if described is None else _json(described, quorum)
        if views is not None:
            document |= {
                "cluster_id": cluster_id(views) if described is None else described.cluster_id,
                "members": view_rows(views),
                "links": link_rows(views),
            }
        print_json(document)
        return
    if described is not None:
        _print_described(described, quorum)
    elif views is not None:
        say(f"cluster {cluster_id(views) or '(none yet)'}; no node serves clients at --bootstrap")
    if views is not None:
        print_views(views)


def _print_described(described: ClusterDescription, quorum: QuorumDescription | None) -> None:
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
        async with Admin(bootstrap, client_settings()) as admin:
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
