"""`headrace quorum resize` and `replace`: more and fewer voters, and another one for a dead one.

One voter changes at a time, and is awaited; a majority of the voters is there all the time. Votes
are given before others are taken.
"""

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json
from headrace.cli.quorum_sizing import Choice, Member, choose, choose_successor, explain_size
from headrace.cli.running import complete, make_sure
from headrace.cli.streams import say, tell
from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.errors import ErrorCode, HeadraceError, KafkaError

VOTERS_MAX = "headrace.voters.max"
VOTERS_LIMIT = 15
"""The most voters."""
ALL_BROKERS = Resource(ResourceType.BROKER, "")


class CannotChangeVoters(HeadraceError):
    """Voters that cannot be as they are wanted, and why."""


@click.command()
@click.argument("voters", type=click.IntRange(1, VOTERS_LIMIT))
@yes_option
@json_option
@bootstrap_option
def resize(voters: int, *, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Set how many nodes vote on the metadata log: 1, 3, 5, ...

    Chooses nodes that are up, on different machines and racks where there are any, and keeps the
    leader. From now on the cluster keeps to the number by itself (headrace.voters.max).
    """

    async def plan() -> Choice:
        async with Admin(bootstrap, client_settings()) as admin:
            members = await _members(admin)
            if reason := explain_size(voters, members):
                raise CannotChangeVoters(reason)
            return choose(members, voters)

    async def work() -> list[int]:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.alter_configs(ALL_BROKERS, set={VOTERS_MAX: str(voters)})
            barred: set[int] = set()
            for _ in range(voters + 2 * VOTERS_LIMIT):
                members = [each for each in await _members(admin) if each.node_id not in barred]
                if reason := explain_size(voters, members):
                    raise CannotChangeVoters(reason)
                choice = choose(members, voters)
                if not choice.add and not choice.remove:
                    return [each.node_id for each in members if each.is_voter]
                if not await _change_one(admin, choice):
                    barred.add(choice.add[0])
            raise CannotChangeVoters("the voters change all the time: run the command again")

    choice = complete(plan())
    for text, nodes in (("get a vote", choice.add), ("lose their vote", choice.remove)):
        if nodes and not as_json:
            say(f"{text}: node {', '.join(map(str, nodes))}")
    if choice.add or choice.remove:
        make_sure(f"Change the voters to {voters}?", is_sure=yes)
    _report(complete(work()), as_json=as_json)


@click.command()
@click.argument("node", type=click.IntRange(min=0))
@yes_option
@json_option
@bootstrap_option
def replace(node: int, *, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Replace a voter, dead or not, by another node; the number of voters stays."""

    async def plan() -> int:
        async with Admin(bootstrap, client_settings()) as admin:
            members = await _members(admin)
            voters = [each.node_id for each in members if each.is_voter]
            if node not in voters:
                raise CannotChangeVoters(
                    f"node {node} does not vote: the voters are {', '.join(map(str, voters))}"
                )
            successor = choose_successor(members, node)
            if successor is None:
                raise CannotChangeVoters(
                    "no other node is up that does not vote yet: start one, or remove the node "
                    f"with `headrace cluster remove {node}`"
                )
            return successor

    async def work(successor: int) -> list[int]:
        async with Admin(bootstrap, client_settings()) as admin:
            if not await _change_one(admin, Choice(add=(successor,))):
                raise CannotChangeVoters(f"node {successor} must not vote")
            await _change_one(admin, Choice(remove=(node,)))
            return [each.node_id for each in await _members(admin) if each.is_voter]

    successor = complete(plan())
    make_sure(f"Let node {successor} vote in place of node {node}?", is_sure=yes)
    _report(complete(work(successor)), as_json=as_json)


async def _change_one(admin: Admin, choice: Choice) -> bool:
    """Make the first change that is left, granting or taking a vote; others may have made it.

    False if the node must not vote, as it is to leave the cluster.
    """
    try:
        if choice.add:
            tell(f"node {choice.add[0]} gets a vote")
            await admin.add_raft_voter(choice.add[0])
        elif choice.remove:
            tell(f"node {choice.remove[0]} loses its vote")
            await admin.remove_raft_voter(choice.remove[0])
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REQUEST and choice.add:
            tell(f"node {choice.add[0]} cannot vote: {error.message}")
            return False
        if error.code not in (ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND):
            raise
    return True


async def _members(admin: Admin) -> list[Member]:
    described, quorum = await admin.describe_cluster(), await admin.describe_quorum()
    nodes = {node.node_id: node for node in described.nodes}
    members = []
    for is_voter, rows in ((True, quorum.voters), (False, quorum.observers)):
        for row in rows:
            node = nodes.get(row.node_id)
            members.append(
                Member(
                    row.node_id,
                    is_voter,
                    is_up=node is not None,
                    is_leader=row.node_id == quorum.leader_id,
                    host="" if node is None else node.address.host,
                    rack=None if node is None else node.rack,
                )
            )
    return members


def _report(voters: list[int], *, as_json: bool) -> None:
    if as_json:
        print_json({"voters": voters})
    else:
        say(f"the voters are node {', '.join(map(str, voters))}")
