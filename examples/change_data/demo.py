"""Change data into a table; see README.md."""

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.testing.broker import TestBroker
from headrace.testing.pipelines import PipelineTest

HERE = Path(__file__).parent


def main(spark: SparkSession | None = None) -> list[tuple[str, str, str]]:
    """Run the example; return the rows of the table."""
    with TestBroker() as broker, tempfile.TemporaryDirectory() as folder:
        changes = PipelineTest(HERE, broker, Path(folder), spark=spark, partitions=3)
        for step in (
            [("1", row("Ada", "Porto")), ("2", row("Bob", "Cork")), ("1", row("Ada", "Turku"))],
            [("2", None), ("3", row("Cyd", "Bergen"))],
            [("3", row("Cyd", "Zagreb")), ("1", row("Ada", "Cork"))],
        ):
            broker.produce("customers", *step)
            changes.run()
        versions = changes.rows("customers")
    newest = max(each["version"] for each in versions)
    return sorted(
        (each["id"], each["name"], each["city"])
        for each in versions
        if each["version"] == newest and not each["is_deleted"]
    )


def row(name: str, city: str) -> str:
    return json.dumps({"name": name, "city": city})


if __name__ == "__main__":
    found = main()
    for each in found:
        print(*each)
    assert found == [("1", "Ada", "Cork"), ("3", "Cyd", "Zagreb")], found
