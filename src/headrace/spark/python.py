"""The Python of Spark's workers: this one, with Spark's installed code.

Spark puts archives of its own code first on the path of its workers. Python compiles modules from
an archive in each process again, which takes a second of CPU, of the ten that Spark gives a worker
to start. If the same code is installed as files, a launcher removes the archives from the path.
"""

import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyspark

from headrace.spark.launchers import NoLauncher, write_launcher

LAUNCHER: Final = """\
#!/bin/sh
# Archives of Spark's code are taken off the path: the same is installed, and compiled.
set -f
kept= IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */pyspark.zip | */py4j-*-src.zip) ;;
        *) kept="${{kept:+$kept:}}$entry" ;;
    esac
done
export PYTHONPATH="$kept"
exec "{python}" "$@"
"""


def worker_python() -> str:
    """Return the PYSPARK_PYTHON for workers on this machine."""
    installed = Path(pyspark.__file__).parent
    spark_home = Path(os.environ.get("SPARK_HOME", installed))
    if os.name != "posix" or not installed.is_dir() or spark_home != installed:
        return sys.executable  # Spark is another one than what is installed here
    name = sha256(sys.executable.encode()).hexdigest()[:12]
    try:
        return str(write_launcher(f"{name}/python", LAUNCHER.format(python=sys.executable)))
    except NoLauncher:
        return sys.executable  # it only takes longer
