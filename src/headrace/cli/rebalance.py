"""`headrace cluster rebalance`: spread bytes, leaders and traffic over the nodes."""

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click
from click.exceptions import Exit

from headrace.cli.carrying_out import Done, Pace, cancel_moves, carry_out, elect_preferred
from headrace.cli.client_config import client_settings
from headrace.cli.decommission import at_once_option, fill_option, rate_option
from headrace.cli.node_calls import (
    NodeCalls,
    ask_all,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import FiniteRange, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json
from headrace.cli.placement_facts import Facts, gather
from headrace.cli.placement_hold import Hold, hold_placement
from headrace.cli.plan_views import plan_document, print_plan, show_progress
from headrace.cli.running import EXIT_REFUSED, complain, complete, make_sure
from headrace.cli.streams import say, tell
from headrace.cli.throttling import clear_throttles, set_throttles
from headrace.client.admin import Admin
from headrace.client.errors import NotReachable
from headrace.client.topics import TopicPartition
from headrace.cluster.balancing.spreading import plan_balance
from headrace.cluster.balancing.terms import TOLERANCE, Limits, Plan
from headrace.errors import HeadraceError, KafkaError

SAMPLE_SECONDS: Final = 3.0
INTERVAL_SECONDS: Final = 60.0
AUTO_MOVES_MAX: Final = 50
"""How many partitions a round of --auto moves, unless told otherwise."""
_LEAVING: Final = ("DRAINING", "DECOMMISSIONED")


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--abort", is_flag=True, help="Cancel all moves in progress, and their rate limits.")
@click.option(
    "--auto", is_flag=True, help="Run until stopped: look again and again, move a little."
)
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=INTERVAL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The pause between two rounds of --auto.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="End --auto after so many rounds.")
@click.option(
    "--max-moves",
    type=click.IntRange(min=1),
    help=f"The most partitions to change at a time.  [default: all; with --auto {AUTO_MOVES_MAX}]",
)
@click.option(
    "--tolerance",
    type=click.IntRange(1, 100),
    default=int(TOLERANCE * 100),
    show_default=True,
    metavar="PERCENT",
    help="How far from the mean a node may be.",
)
@click.option(
    "--sample",
    type=FiniteRange(min=0),
    default=SAMPLE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long traffic is measured; 0 leaves it out.",
)
@rate_option
@at_once_option
@fill_option
@yes_option
@json_option
@bootstrap_option
@node_option
@secret_option
def rebalance(  # noqa: PLR0913  options
    *,
    dry_run: bool,
    abort: bool,
    auto: bool,
    interval: float,
    rounds: int | None,
    max_moves: int | None,
    tolerance: int,
    sample: float,
    rate: int,
    at_once: int,
    fill_max: int,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    node: str,
    secret_file: Path | None,
) -> None:
    """Spread bytes, traffic and leaders over nodes, machines and racks, with few moves.

    Shows what each node has before and after. Ctrl-C leaves the moves running; --abort cancels
    them. It works on any Kafka cluster; on Headrace only one plan is carried out at a time.
    """
    if auto and max_moves is None:
        max_moves = AUTO_MOVES_MAX
    job = _Job(
        bootstrap,
        parse_nodes(node),
        read_secret_file(secret_file),
        Limits(fill_max / 100, tolerance / 100, moves_max=max_moves),
        Pace(at_once),
        sample_seconds=sample,
        rate=rate,
    )
    try:
        if abort:
            cancelled = complete(job.abort())
            print_json({"cancelled_moves": cancelled}) if as_json else say(
                f"{cancelled} moves were cancelled"
            )
        elif auto:
            complete(_run_auto(job, interval, rounds, as_json=as_json, is_dry=dry_run))
        else:
            _run_once(job, as_json=as_json, dry_run=dry_run, is_sure=yes)
    except KeyboardInterrupt:
        tell("headrace: moves in progress go on; `headrace cluster rebalance --abort` cancels them")
        raise


def _run_once(job: "_Job", *, as_json: bool, dry_run: bool, is_sure: bool) -> None:
    facts, plan = complete(job.plan())
    if as_json:
        if dry_run:
            print_json(plan_document(plan))
    elif not plan.moves:
        say("nothing to do: every node is within the tolerance, or no move would help")
    else:
        print_plan(plan)
    for problem in plan.problems:
        tell(f"headrace: {problem}")
    if not dry_run and plan.moves:
        make_sure(f"Change {len(plan.moves)} partitions?", is_sure=is_sure)
        done = complete(job.run(facts, plan))
        _report(plan, done, as_json=as_json)
    elif not dry_run and as_json:
        _report(plan, Done(refused={}), as_json=True)


def _report(plan: Plan, done: Done, *, as_json: bool) -> None:
    for key, error in done.refused.items():
        complain(error, str(key))
    if as_json:
        print_json(
            {
                **plan_document(plan),
                "moved": done.moves,
                "refused": [str(key) for key in done.refused],
            }
        )
    else:
        say(f"{done.moves} of {len(plan.moves)} partitions changed")
    if done.refused or done.is_stopped:
        raise Exit(EXIT_REFUSED)


async def _run_auto(
    job: "_Job", interval: float, rounds: int | None, *, as_json: bool, is_dry: bool
) -> None:
    """Plan and move a little, again and again; a round that cannot be is left out."""
    number = 0
    while rounds is None or number < rounds:
        if number:
            await asyncio.sleep(interval)
        number += 1
        try:
            facts, plan = await job.plan()
            reason = _why_wait(facts)
            moves = 0 if reason else len(plan.moves)
            if moves and not is_dry:
                moves = (await job.run(facts, plan)).moves
        except (KafkaError, NotReachable) as error:
            moves, reason = 0, str(error)
        if as_json:
            print_json({"round": number, "changed": moves, "waits": reason})
        elif reason:
            say(f"round {number}: waits, as {reason}")
        else:
            say(f"round {number}: {moves} partitions {'would change' if is_dry else 'changed'}")


def _why_wait(facts: Facts) -> str:
    """Return why nothing is moved now; nothing if it may be."""
    if facts.down:
        return f"node {', '.join(map(str, facts.down))} is down"
    if facts.moving:
        return f"{len(facts.moving)} partitions are on the move already"
    behind = sum(
        len(facts.in_sync[TopicPartition(row.topic, row.partition)]) < len(row.replicas)
        for row in facts.partitions
    )
    return f"{behind} partitions lack copies" if behind else ""


class _Job:
    """A rebalance, once or again and again."""

    def __init__(
        self,
        bootstrap: str,
        addresses: list[str],
        secret: bytes | None,
        limits: Limits,
        pace: Pace,
        *,
        sample_seconds: float,
        rate: int,
    ) -> None:
        self._bootstrap = bootstrap
        self._addresses = addresses
        self._secret = secret
        self._limits = limits
        self._pace = pace
        self._sample_seconds = sample_seconds
        self._rate = rate

    async def plan(self) -> tuple[Facts, Plan]:
        async with (
            Admin(self._bootstrap, client_settings()) as admin,
            NodeCalls(self._secret) as calls,
        ):
            leaving = await self._leaving(calls)
            facts = await gather(admin, sample_seconds=self._sample_seconds, leaving=leaving)
            for each in facts.down:
                tell(f"headrace: node {each} is down: what it keeps stays there")
            return facts, plan_balance(facts.nodes, facts.partitions, self._limits)

    async def run(self, facts: Facts, plan: Plan) -> Done:
        nodes = [row.node_id for row in facts.nodes]
        async with (
            Admin(self._bootstrap, client_settings()) as admin,
            NodeCalls(self._secret) as calls,
        ):
            async with self._hold(calls, facts.cluster_id) as hold:
                if self._rate:
                    await set_throttles(admin, nodes, plan.moves, self._rate)
                with show_progress(len(plan.moves), plan.copied_bytes) as progress:
                    done = await carry_out(admin, plan.moves, self._pace, progress, hold.is_held)
                if hold.lost:  # whoever takes over ends the moves, and clears the limits
                    tell(f"headrace: {hold.lost}")
                    return done
                await elect_preferred(admin, plan.moves)
                await clear_throttles(admin, nodes, {move.topic for move in plan.moves})
            return done

    async def abort(self) -> int:
        """Cancel all moves, once the command that carries them out has ended."""
        async with (
            Admin(self._bootstrap, client_settings()) as admin,
            NodeCalls(self._secret) as calls,
        ):
            described = await admin.describe_cluster()
            async with self._hold(calls, described.cluster_id, takes_over=True):
                return await self._cancel(admin)

    async def _cancel(self, admin: Admin) -> int:
        outcomes = await cancel_moves(admin, lambda move: True)
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

    async def _leaving(self, calls: NodeCalls) -> Set[int]:
        """Return the nodes that are to leave, if a node port can be asked."""
        try:
            views = await ask_all(calls, self._addresses)
        except HeadraceError:
            return frozenset()
        return {
            row.node for view in views.seen.values() for row in view.nodes if row.state in _LEAVING
        }

    @asynccontextmanager
    async def _hold(
        self, calls: NodeCalls, cluster_id: str, *, takes_over: bool = False
    ) -> AsyncIterator[Hold]:
        """Hold the lease of the cluster, if a node port of it can be asked."""
        try:
            views = await ask_all(calls, self._addresses)
            is_ours = all(view.cluster_id == cluster_id for view in views.seen.values())
        except HeadraceError:
            is_ours = False
        if not is_ours:
            tell(
                "headrace: no node port of this cluster can be asked (--node), so nothing keeps "
                "another plan from being carried out at the same time"
            )
            yield Hold()
            return
        async with hold_placement(calls, self._addresses, takes_over=takes_over) as hold:
            yield hold
