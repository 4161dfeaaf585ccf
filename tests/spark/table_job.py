"""A writer of a table that is killed where it is told to be; run as a program.

    python -m tests.spark.table_job BOOTSTRAP FOLDER BATCH STEP

At STEP of the batch with the number BATCH of this run the driver is killed: its JVM and its Python.
"""

import os
import signal
import sys
from pathlib import Path

from headrace.spark import session
from headrace.spark.tables.administration import find_table, read_options_of, store_options
from headrace.spark.tables.engine import OnSpark
from headrace.spark.tables.running import TableRun

TABLE = "orders_t"


def main(bootstrap: str, _: Path, batch: int, step: str) -> None:
    spark = session("local[2]", banner=False)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pids = [jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
    planned = []

    def meet(reached: str) -> None:
        if reached == "planned":
            planned.append(reached)
        if reached == step and len(planned) == batch + 1:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

    definition = find_table(bootstrap, TABLE)
    options = read_options_of(bootstrap, definition.topic)
    run = TableRun(
        definition, options, store_options(definition), OnSpark(lambda: spark), on_step=meet
    )
    run.begin()
    run.run_available()
    run.end()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
