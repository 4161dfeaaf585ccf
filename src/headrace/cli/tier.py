"""`headrace tier`: the object store behind topics. Each subcommand has its own file."""

import click

from headrace.cli.options import CommandGroup
from headrace.cli.tier_audit import audit
from headrace.cli.tier_fsck import fsck
from headrace.cli.tier_restore import restore
from headrace.cli.tier_status import cost, status


@click.group(cls=CommandGroup)
def tier() -> None:
    """Watch, check, repair and restore what topics have in object storage."""


tier.add_command(status)
tier.add_command(cost)
tier.add_command(fsck)
tier.add_command(audit)
tier.add_command(restore)
