"""`headrace cluster decommission`: take a node out of the cluster for good.

The steps: plan and show it, mark the node, move its replicas, take its vote, wait until it has
stopped and is removed. The mark and the moves are in the cluster, so the command may end anywhere
and be run again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from click.exceptions import Exit

from headrace.cli.carrying_out import AT_ONCE, Done, Pace, cancel_moves, carry_out, until
from headrace.cli.client_config import client_settings
from headrace.cli.node_calls import (
    NodeCalls,
    ask_all,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json
from headrace.cli.placement_facts import Facts, gather
from headrace.cli.placement_hold import Hold, hold_placement
from headrace.cli.plan_views import plan_document, print_plan, show_progress
from headrace.cli.running import EXIT_REFUSED, complete, make_sure
from headrace.cli.sizes import Size
from headrace.cli.streams import say, tell
from headrace.cli.throttling import clear_throttles, set_throttles
from headrace.client.admin import Admin
from headrace.client.errors import NotReachable
from headrace.client.topics import TopicPartition
from headrace.cluster import operator_words as words
from headrace.cluster.balancing.draining import plan_drain
from headrace.cluster.balancing.terms import FILL_MAX, Limits, Move, Plan
from headrace.errors import ErrorCode, HeadraceError, KafkaError

RATE: Final = 32 * 1024 * 1024
"""Bytes per second and node that moves take, unless told otherwise."""
ROUNDS_MAX: Final = 10
"""How often it is planned again what came to the node meanwhile."""
MARK_SECONDS_MAX: Final = 5.0
"""How long nodes may take to hear that one is to leave."""
VOTE_SECONDS_MAX: Final = 120.0
LEAVE_SECONDS_MAX: Final = 120.0
EXAMPLES: Final = 3
_LEAVING: Final = ("DRAINING", "DECOMMISSIONED")

rate_option: Final = click.option(
    "--rate",
    type=Size(),
    default=RATE,
    show_default="32MiB",
    metavar="SIZE",
    help="The most bytes per second that a node sends or takes for moves; 0 for no limit.",
)
at_once_option: Final = click.option(
    "--at-once",
    type=click.IntRange(1, 1000),
    default=AT_ONCE,
    show_default=True,
    help="How many partitions are on the move at a time.",
)
fill_option: Final = click.option(
    "--fill-max",
    type=click.IntRange(1, 100),
    default=int(FILL_MAX * 100),
    show_default=True,
    metavar="PERCENT",
    help="How full the plan may make a disk.",
)


class CannotDecommission(HeadraceError):
    """A node that has to stay, and why."""


@click.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(min=0))
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--abort", is_flag=True, help="Stop moving, and keep the node.")
@click.option("--dead", is_flag=True, help="The node is gone: replace its replicas from others.")
@click.option(
    "--fewer-replicas", is_flag=True, help="Where nodes are too few, keep fewer replicas."
)
@rate_option
@at_once_option
@fill_option
@yes_option
@json_option
@bootstrap_option
@node_option
@secret_option
def decommission(  # noqa: PLR0913  options
    node_id: int,
    *,
    dry_run: bool,
    abort: bool,
    dead: bool,
    fewer_replicas: bool,
    rate: int,
    at_once: int,
    fill_max: int,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    node: str,
    secret_file: Path | None,
) -> None:
    """Take a node out: move what it has, take its vote, and let it stop.

    Shows the plan first. The node may be switched off when the command is done. Ctrl-C leaves the
    moves running; run the command again to go on, or with --abort to keep the node.
    """
    secret = read_secret_file(secret_file)
    job = _Job(
        node_id,
        bootstrap,
        parse_nodes(node),
        secret,
        is_dead=dead,
        rate=rate,
        pace=Pace(at_once, may_shrink=fewer_replicas),
        limits=Limits(fill_max=fill_max / 100, may_shrink=fewer_replicas),
    )
    if abort:
        cancelled = complete(job.abort())
        if as_json:
            print_json({"node": node_id, "kept": True, "cancelled_moves": cancelled})
        else:
            say(f"node {node_id} stays; {cancelled} moves were cancelled, what had moved stays so")
        return
    plan = complete(job.plan())
    if not as_json:
        print_plan(plan)
    if plan.problems or dry_run:
        _end_planned(node_id, plan, as_json=as_json)
        return
    make_sure(f"Decommission node {node_id}?", is_sure=yes)
    try:
        done = complete(job.run())
    except KeyboardInterrupt:
        tell(
            f"headrace: the moves in progress go on; run the command again to go on, or `headrace "
            f"cluster decommission {node_id} --abort` to keep the node"
        )
        raise
    if as_json:
        print_json(
            {
                "node": node_id,
                "decommissioned": True,
                "moves": done.moves,
                "copied_bytes": done.copied_bytes,
            }
        )
    else:
        say(f"node {node_id} has left the cluster: it can be switched off, and its id is free")


def _end_planned(node_id: int, plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json({"node": node_id, **plan_document(plan)})
    for problem in plan.problems:
        tell(f"headrace: node {node_id} cannot be decommissioned: {problem}")
    if plan.problems:
        raise Exit(EXIT_REFUSED)


class _Job:
    """One decommission."""

    def __init__(
        self,
        node_id: int,
        bootstrap: str,
        addresses: list[str],
        secret: bytes | None,
        *,
        is_dead: bool,
        rate: int,
        pace: Pace,
        limits: Limits,
    ) -> None:
        self._node = node_id
        self._bootstrap = bootstrap
        self._addresses = addresses
        self._secret = secret
        self._is_dead = is_dead
        self._rate = rate
        self._pace = pace
        self._limits = limits

    async def plan(self) -> Plan:
        """Return the plan; CannotDecommission if the node is not known."""
        async with (
            Admin(self._bootstrap, client_settings()) as admin,
            NodeCalls(self._secret) as calls,
        ):
            rows = await self._find_nodes(calls)
            facts = await self._gather(admin, rows)
            return self._plan(facts)

    async def run(self) -> Done:
        """Do it; return what was moved."""
        async with (
            Admin(self._bootstrap, client_settings()) as admin,
            NodeCalls(self._secret) as calls,
        ):
            await self._find_nodes(calls)
            async with hold_placement(calls, self._addresses, takes_over=True) as hold:
                await calls.ask_any(self._addresses, words.StartLeaving(self._node, self._is_dead))
                done = await self._move_all(admin, calls, hold)
            await self._finish(calls)
            return done

    async def abort(self) -> int:
        """Cancel moves away from the node and let it stay; return how many there were."""
        async with (
            Admin(self._bootstrap, client_settings()) as admin,
            NodeCalls(self._secret) as calls,
        ):
            rows = await self._find_nodes(calls)
            await self._check_cluster(admin)
            if rows[self._node].state not in _LEAVING:
                raise CannotDecommission(f"node {self._node} is not being decommissioned")
            # A command that still moves ends first: else it would go on, without its rate limit.
            async with hold_placement(calls, self._addresses, takes_over=True):
                await calls.ask_any(self._addresses, words.KeepNode(self._node))
                return await self._cancel(admin)

    async def _cancel(self, admin: Admin) -> int:
        outcomes = await cancel_moves(admin, lambda move: self._node in move.removing)
        for error in outcomes.values():
            if error is not None:
                raise error
        described = await admin.describe_cluster()
        topics = await admin.list_topics(with_internal=True)
        await clear_throttles(
            admin,
            [each.node_id for each in described.nodes],
            [topic.name for topic in topics],
        )
        return len(outcomes)

    # Steps

    async def _find_nodes(self, calls: NodeCalls) -> dict[int, words.NodeRow]:
        """Return the nodes of the cluster; from now on all of them are asked but the one."""
        views = await ask_all(calls, self._addresses)
        rows = {row.node: row for view in views.seen.values() for row in view.nodes if row.state}
        self._cluster_id = next(view.cluster_id for view in views.seen.values())
        if self._node not in rows:
            known = ", ".join(map(str, sorted(rows)))
            raise CannotDecommission(f"there is no node {self._node}: the nodes are {known}")
        others = [view.address for each, view in views.seen.items() if each != self._node]
        if not others:
            raise CannotDecommission(
                f"no other node than {self._node} can be asked: a cluster cannot lose its last node"
            )
        self._addresses = others
        return rows

    async def _find_leaving(self, calls: NodeCalls) -> dict[int, words.NodeRow]:
        """Return the nodes; CannotDecommission if the one is to stay, as somebody has said since.

        A node that has not heard of the mark yet is asked again.
        """
        rows: dict[int, words.NodeRow] = {}

        async def is_leaving() -> bool:
            nonlocal rows
            rows = await self._find_nodes(calls)
            return rows[self._node].state in _LEAVING

        if not await until(is_leaving, MARK_SECONDS_MAX):
            raise CannotDecommission(f"node {self._node} is not to leave any more: it was aborted")
        return rows

    async def _check_cluster(self, admin: Admin) -> None:
        described = await admin.describe_cluster()
        if described.cluster_id != self._cluster_id:
            raise CannotDecommission(
                f"--bootstrap is cluster {described.cluster_id}, but --node is cluster "
                f"{self._cluster_id}"
            )

    async def _gather(self, admin: Admin, rows: dict[int, words.NodeRow]) -> Facts:
        await self._check_cluster(admin)
        leaving = {each for each, row in rows.items() if row.state in _LEAVING}
        return await gather(admin, leaving=leaving | {self._node})

    def _plan(self, facts: Facts) -> Plan:
        plan = plan_drain(facts.nodes, facts.partitions, {self._node}, self._limits)
        moving = [
            Move(
                key.topic,
                key.partition,
                move.replicas,
                tuple(each for each in move.replicas if each not in move.removing),
                0,
                "is on the move already",
            )
            for key, move in facts.moving.items()
            if self._node in move.removing
        ]
        problems = (*plan.problems, *self._why_lost(facts))
        return Plan((*moving, *plan.moves), problems, plan.before, plan.after)

    def _why_lost(self, facts: Facts) -> list[str]:
        """Return why a node that is gone cannot be replaced: only it had some records."""
        is_up = any(row.node_id == self._node for row in facts.nodes)
        if not self._is_dead:
            return [] if is_up else [f"node {self._node} is down: start it, or use --dead"]
        if is_up:
            return [f"node {self._node} is up: leave --dead away"]
        lost = [
            str(TopicPartition(row.topic, row.partition))
            for row in facts.partitions
            if self._node in row.replicas
            and not set(facts.in_sync[TopicPartition(row.topic, row.partition)]) - {self._node}
        ]
        if not lost:
            return []
        named = ", ".join(lost[:EXAMPLES]) + (", ..." if len(lost) > EXAMPLES else "")
        return [
            f"it has the only copy in sync of {len(lost)} partitions ({named}): bring it back, or "
            "delete these topics"
        ]

    async def _move_all(self, admin: Admin, calls: NodeCalls, hold: Hold) -> Done:
        """Move until the node has nothing, also what came to it meanwhile."""
        total = Done(refused={})
        for _ in range(ROUNDS_MAX):
            rows = await self._find_leaving(calls)
            facts = await self._gather(admin, rows)
            plan = self._plan(facts)
            if plan.problems:
                raise CannotDecommission("; ".join(plan.problems))
            if not plan.moves:
                break
            if hold.lost:
                raise CannotDecommission(hold.lost)
            done = await self._carry_out(admin, facts, plan.moves, hold)
            total.moves += done.moves
            total.copied_bytes += done.copied_bytes
            if hold.lost:
                raise CannotDecommission(hold.lost)
            if done.refused:
                key, error = next(iter(done.refused.items()))
                raise CannotDecommission(f"{key} cannot be moved: {error.message}")
        await clear_throttles(admin, [row.node_id for row in facts.nodes], facts.topics)
        return total

    async def _carry_out(
        self, admin: Admin, facts: Facts, moves: Sequence[Move], hold: Hold
    ) -> Done:
        if self._rate:
            nodes = [row.node_id for row in facts.nodes]
            await set_throttles(admin, nodes, moves, self._rate)
        size = sum(move.copied_bytes for move in moves)
        with show_progress(len(moves), size) as progress:
            return await carry_out(admin, moves, self._pace, progress, hold.is_held)

    async def _finish(self, calls: NodeCalls) -> None:
        """Take the node's vote, and wait until it is removed."""
        last: HeadraceError | None = None

        async def has_no_vote() -> bool:
            nonlocal last
            try:
                await calls.ask_any(self._addresses, words.FinishLeaving(self._node))
            except NotReachable as error:
                last = error
                return False
            except KafkaError as error:
                last = error
                if error.code not in _PASSING:
                    raise
                return False
            return True

        async def is_gone() -> bool:
            try:
                views = await ask_all(calls, self._addresses)
            except (NotReachable, KafkaError):
                return False
            return not any(
                row.node == self._node and row.state
                for view in views.seen.values()
                for row in view.nodes
            )

        if not await until(has_no_vote, VOTE_SECONDS_MAX):
            raise CannotDecommission(f"node {self._node} still votes: {last}")
        if not await until(is_gone, LEAVE_SECONDS_MAX):
            raise CannotDecommission(
                f"node {self._node} has nothing any more, but has not stopped: stop it; it is "
                "removed then"
            )


_PASSING: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
)
"""Errors of a change of voters that may be gone the next time."""
