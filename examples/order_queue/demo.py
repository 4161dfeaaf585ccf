"""An order queue with retries and dead letters; see README.md."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.testing.broker import TestBroker
from headrace.testing.pipelines import PipelineTest

HERE = Path(__file__).parent
DEAD = "dlq.orders"
RUNS_MAX = 6


def main(spark: SparkSession | None = None) -> tuple[list[tuple[int, int]], list[str]]:
    """Run the example; return the charged orders with their attempts, and the dead letters."""
    with TestBroker() as broker, tempfile.TemporaryDirectory() as folder:
        broker.create_topic(DEAD)
        broker.configure_group(
            "billing",
            {
                "share.auto.offset.reset": "earliest",
                "errors.deadletterqueue.topic.name": DEAD,
            },
        )
        queue = PipelineTest(HERE, broker, Path(folder), spark=spark)
        queue.produce(
            "orders",
            {"id": 1, "amount": 5.0},
            {"id": 2, "amount": 7.0, "declines": 1},
            {"id": 3, "amount": 9.0, "declines": 9},
            "no order at all",
            {"id": 4, "amount": 2.0, "declines": 2},
        )
        for _ in range(RUNS_MAX):  # orders that come back are there for the next run
            queue.run()
            letters = [(each.value or b"").decode() for each in broker.consume(DEAD)]
            charged = sorted((row["id"], row["attempt"]) for row in queue.rows("charged"))
            if len(charged) == 3 and len(letters) == 2:
                break
    return charged, sorted(letters)


if __name__ == "__main__":
    done, dead = main()
    print("charged, with attempts:", done)
    print("dead letters:", dead)
    assert done == [(1, 1), (2, 2), (4, 3)], done
    assert len(dead) == 2, dead
