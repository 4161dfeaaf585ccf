"""Small scripts that Spark starts instead of a program itself, in a folder of the user's own."""

import os
import tempfile
from pathlib import Path

from headrace.errors import HeadraceError


class NoLauncher(HeadraceError):
    """Nowhere to put a script that can be run."""


def write_launcher(path: str, script: str) -> Path:
    """Write a script that can be run, at a path below the folder; give where it is.

    NoLauncher if the folder for temporary files does not allow that.
    """
    folder = Path(tempfile.gettempdir()) / f"headrace-launchers-{os.getuid()}"
    launcher = folder / path
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            raise NoLauncher(f"{folder} belongs to another user: remove it")
        launcher.parent.mkdir(parents=True, exist_ok=True)
        scratch = launcher.with_name(f"{launcher.name}.{os.getpid()}")
        scratch.write_text(script)
        scratch.chmod(0o700)
        scratch.replace(launcher)  # at once: another session may start from it now
    except OSError as error:
        raise NoLauncher(f"{launcher} cannot be written: {error}") from error
    if not os.access(launcher, os.X_OK):
        raise NoLauncher(f"nothing in {folder} may be run: have TMPDIR name another folder")
    return launcher
