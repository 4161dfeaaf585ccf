"""Replaying a month after a bug; see README.md."""

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.testing.broker import TestBroker
from headrace.testing.pipelines import PipelineTest

HERE = Path(__file__).parent
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
DAYS = ("2026-09-15", "2026-09-30", "2026-10-02", "2026-10-20", "2026-11-03")


def main(spark: SparkSession | None = None) -> tuple[dict[str, float], dict[str, float]]:
    """Run the example; return the revenue by month, before and after."""
    with TestBroker() as broker, tempfile.TemporaryDirectory() as folder:
        sales = PipelineTest(HERE, broker, Path(folder), spark=spark)
        for number, day in enumerate(DAYS):
            at = datetime.fromisoformat(f"{day}T12:00:00+00:00")
            amount = 1000.0 if at >= OCTOBER else 10.0  # cents, from October on
            sale = {"id": number, "at": at.isoformat(), "amount": amount}
            sales.produce("sales_topic", sale, timestamp_ms=milliseconds(at))
        sales.run()
        wrong = revenue(sales)
        for month in ("2026-10", "2026-11"):
            shutil.rmtree(sales.folder / "out/sales" / f"month={month}")
        sales.parameters |= {
            "cents_since": "2026-10-01",
            "since_ms": str(milliseconds(OCTOBER)),
            "label": "corrected",
        }
        sales.run(resets=["sales"])
        sales.run()  # and on as before: nothing is read twice
        return wrong, revenue(sales)


def milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def revenue(sales: PipelineTest) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in sales.rows("sales"):
        found[row["month"]] = found.get(row["month"], 0.0) + row["amount"]
    return dict(sorted(found.items()))


if __name__ == "__main__":
    before, after = main()
    print("before:", before)
    print("after: ", after)
    assert after == {"2026-09": 20.0, "2026-10": 20.0, "2026-11": 10.0}, after
