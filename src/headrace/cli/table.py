"""`headrace table`: topics as Iceberg, Delta or Parquet tables; a file for some subcommands."""

import click

from headrace.cli.options import CommandGroup
from headrace.cli.table_change import alter, drop
from headrace.cli.table_create import create
from headrace.cli.table_jobs import backfill, compact, replay
from headrace.cli.table_run import run
from headrace.cli.table_status import list_, status
from headrace.cli.table_verify import verify


@click.group(cls=CommandGroup)
def table() -> None:
    """Keep topics as tables: exactly once, with dead letters, while columns change."""


table.add_command(create)
table.add_command(run)
table.add_command(status)
table.add_command(list_)
table.add_command(verify)
table.add_command(backfill)
table.add_command(compact)
table.add_command(replay)
table.add_command(alter)
table.add_command(drop)
