"""Small scripts that Spark starts instead of a program itself, in a folder of the user's own."""

import os
import tempfile
from pathlib import Path

from headrace.errors import HeadraceError


class NoLauncher(HeadraceError):
    """A folder for launchers that is not this user's."""


def write_launcher(path: str, script: str) -> Path:
    """Write a script that can be run, at a path below the folder; give where it is."""
    folder = Path(tempfile.gettempdir()) / f"headrace-launchers-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise NoLauncher(f"{folder} belongs to somebody else: remove it")
    launcher = folder / path
    launcher.parent.mkdir(parents=True, exist_ok=True)
    scratch = launcher.with_name(f"{launcher.name}.{os.getpid()}")
    scratch.write_text(script)
    scratch.chmod(0o700)
    scratch.replace(launcher)  # at once: another session may start from it now
    return launcher
