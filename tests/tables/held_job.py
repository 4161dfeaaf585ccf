"""A backfill that stops in the middle of its work until it is told to go on; run as a program.

    python -m tests.tables.held_job BOOTSTRAP TABLE

It prints `working`, waits for a line, and prints how many rows it has written.
"""

import sys
from typing import Any

from headrace.spark.tables.backfilling import backfill_table
from headrace.spark.tables.engine import Here


class Held(Here):
    def run(self, work: Any, inputs: Any) -> Any:
        print("working", flush=True)
        sys.stdin.readline()
        return super().run(work, inputs)


if __name__ == "__main__":
    print(backfill_table(sys.argv[1], sys.argv[2], Held()).rows, "rows", flush=True)
