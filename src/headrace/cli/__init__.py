"""The command line: one file per command. A command prints; it makes no decisions.

Nothing is imported here, so that a command does not load modules that only another one needs.
`program` finds the command to run. Exit codes are in `running`.
"""

from typing import Final

COMMANDS: Final = {
    "up": "up:up",
    "topics": "topics:topics",
    "configs": "configs:configs",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "groups": "groups:groups",
    "share": "share:share",
    "txn": "txn:txn",
    "acls": "acls:acls",
    "users": "users:users",
    "quotas": "quotas:quotas",
    "tokens": "delegation_tokens:tokens",
    "audit": "audit:audit",
    "cluster": "cluster:cluster",
    "quorum": "quorum:quorum",
    "tier": "tier:tier",
    "mirror": "mirror:mirror",
    "pipeline": "pipeline:pipeline",
    "table": "table:table",
    "log": "log_dump:log",
    "version": "version:version",
}
"""The module of each command, and its function or group there."""


def main() -> None:
    """Run the command of this process, then exit."""
    from headrace.cli.streams import open_streams  # noqa: PLC0415  nothing is imported above

    open_streams()  # before anything else is opened, which could get their file descriptors
    from headrace.cli.program import run  # noqa: PLC0415  it needs the table above

    run()
