"""Clicks with late data into a table; see README.md."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.testing.broker import TestBroker
from headrace.testing.pipelines import PipelineTest

HERE = Path(__file__).parent
COUNTED = [
    {"page": "/", "since": "10:00", "clicks": 3},
    {"page": "/", "since": "10:05", "clicks": 2},
    {"page": "/shop", "since": "10:00", "clicks": 1},
]


def main(spark: SparkSession | None = None) -> list[dict[str, object]]:
    """Run the example; return the rows of the table."""
    with TestBroker() as broker, tempfile.TemporaryDirectory() as folder:
        clicks = PipelineTest(HERE, broker, Path(folder), spark=spark)
        clicks.produce("clicks", *(click("/", minute) for minute in (1, 2, 6, 7)))
        clicks.produce("clicks", click("/shop", 3), click("/", 14))
        clicks.run()
        clicks.produce("clicks", click("/", 4))  # ten minutes late: counted
        clicks.run()
        clicks.produce("clicks", click("/", 40))  # time goes on: the windows are complete
        clicks.run()
        clicks.produce("clicks", click("/", 5))  # half an hour late: not counted
        clicks.run()
        rows = [
            {**row, "since": f"{row['since']:%H:%M}"}
            for row in clicks.rows("clicks_per_page")
            if row["since"].minute < 10
        ]
    return sorted(rows, key=lambda row: (str(row["page"]), str(row["since"])))


def click(page: str, minute: int) -> dict[str, str]:
    return {"page": page, "at": f"2026-11-01T10:{minute:02}:00Z"}


if __name__ == "__main__":
    found = main()
    for each in found:
        print(each)
    assert found == COUNTED, found
