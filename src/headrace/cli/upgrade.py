"""`headrace cluster upgrade`: use what upgraded nodes can do, and say which nodes hold it up."""

from collections.abc import Mapping

import click
from click.exceptions import Exit
from msgspec import Struct

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import EXIT_REFUSED, complete
from headrace.cli.streams import say
from headrace.client.admin import Admin
from headrace.client.errors import NotReachable
from headrace.client.features import Feature
from headrace.errors import ErrorCode, KafkaError


class FeatureUpgrade(Struct):
    """What is to become of a feature."""

    feature: str
    now: int
    to: int
    """The highest level at which every node can work."""
    newest: int
    """The highest level that any node knows."""
    held_up_by: list[str]
    """The nodes that keep it from the newest level, and why."""


def plan_upgrades(of_nodes: Mapping[int, Mapping[str, Feature]]) -> list[FeatureUpgrade]:
    """Return the features that are below the newest level which a node knows."""
    plans = []
    for name in sorted({name for features in of_nodes.values() for name in features}):
        rows = {node: features[name] for node, features in of_nodes.items() if name in features}
        # A node may not have heard of the last change yet; levels never go back by themselves.
        now = max(row.finalized for row in rows.values())
        newest = max(row.supported_max for row in rows.values())
        highest = {node: rows[node].supported_max if node in rows else 0 for node in of_nodes}
        if newest > now:
            held = [
                f"node {node} knows levels up to {level}"
                for node, level in sorted(highest.items())
                if level < newest
            ]
            to = max(now, min(highest.values()))
            plans.append(FeatureUpgrade(name, now, to, newest, held))
    return plans


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@json_option
@bootstrap_option
def upgrade(*, dry_run: bool, as_json: bool, bootstrap: str) -> None:
    """Let the cluster use what its software can do, as far as every node can.

    Raises each feature to the highest level that all nodes know, never lowers one, and names the
    nodes that keep it from the newest level; the exit code is 1 then. Older software cannot join
    afterwards.
    """

    async def work() -> list[FeatureUpgrade]:
        async with Admin(bootstrap, client_settings()) as admin:
            described = await admin.describe_cluster()
            of_nodes: dict[int, dict[str, Feature]] = {}
            for node in described.nodes:
                try:
                    of_nodes[node.node_id] = await admin.describe_features(node.node_id)
                except NotReachable:
                    continue  # the controller knows its levels
            plans = plan_upgrades(of_nodes)
            for plan in plans:
                await _raise(admin, plan, dry_run=dry_run)
            return plans

    plans = complete(work())
    if as_json:
        print_json(plans)
    elif not plans:
        say("nothing to upgrade: every feature is at the highest level of this software")
    else:
        _print(plans, dry_run=dry_run)
    if any(plan.held_up_by for plan in plans):
        raise Exit(EXIT_REFUSED)


async def _raise(admin: Admin, plan: FeatureUpgrade, *, dry_run: bool) -> None:
    """Raise a feature; if nodes that are down hold it up, take note of that."""
    if plan.to == plan.now:
        return
    try:
        await admin.update_features({plan.feature: plan.to}, validate_only=dry_run)
    except KafkaError as error:
        if error.code not in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FEATURE_UPDATE_FAILED):
            raise
        plan.to = plan.now
        plan.held_up_by.append(error.message)


def _print(plans: list[FeatureUpgrade], *, dry_run: bool) -> None:
    raised = [plan for plan in plans if plan.to > plan.now]
    if raised:
        print_table(
            ("feature", "from", "to"),
            [(plan.feature, plan.now, plan.to) for plan in raised],
            title="would be raised" if dry_run else "raised",
        )
    for plan in plans:
        for reason in plan.held_up_by:
            say(f"{plan.feature} could be at {plan.newest}, but {reason}")
