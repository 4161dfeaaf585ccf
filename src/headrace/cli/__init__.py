"""The command line: one file a command; a command prints, it never decides.

Nothing is imported here: a command waits for no module that only another one needs. `program` finds
the one that is called. Exit codes are in `running`.
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
    "cluster": "cluster:cluster",
    "log": "log_dump:log",
    "version": "version:version",
}
"""Where each command is: its module here, and its function or group there."""


def main() -> None:
    """Run the command that the process was called with, and leave the process."""
    from headrace.cli.streams import open_streams  # noqa: PLC0415  nothing is imported above

    open_streams()  # before anything is opened that could get their numbers
    from headrace.cli.program import run  # noqa: PLC0415  it needs the table above

    run()
