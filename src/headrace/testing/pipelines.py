"""Pipelines in tests: run on a small broker with given records, and compare what they store.

    def test_totals(headrace_pipeline):
        pipeline = headrace_pipeline("pipelines/orders")
        pipeline.produce("orders", {"id": 1, "amount": 5})
        pipeline.run()
        pipeline.expect("totals", [{"id": 1, "amount": 5}])

Works on a copy of the folder, so a test leaves nothing behind and begins without checkpoints.
Needs headrace[spark].
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace.client.cluster import Cluster
from headrace.client.topics import NewTopic, create_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.pipelines.definition import Defined, load
from headrace.spark.pipelines.running import Run
from headrace.spark.pipelines.state import FOLDER, claim, hold
from headrace.spark.session import session
from headrace.testing.broker import TestBroker

BOOTSTRAP: Final = "bootstrap"
"""The parameter that is set to the broker's address, if the pipeline has it."""
_LOG: Final = ("headrace", "headrace-share")


class PipelineTest:
    """A pipeline on a broker of its own."""

    def __init__(
        self,
        folder: str | Path,
        broker: TestBroker,
        place: Path,
        *,
        parameters: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        partitions: int = 1,
    ) -> None:
        """`place` is an empty folder; `partitions` is for topics that do not exist yet."""
        self.folder = place / Path(folder).resolve().name
        ignored = shutil.ignore_patterns(FOLDER, "out", "__pycache__")
        shutil.copytree(folder, self.folder, ignore=ignored)
        self.broker = broker
        self.parameters = dict(parameters or {})
        """Parameters that are not the pipeline's defaults; may be changed between runs."""
        self._spark = spark
        self._partitions = partitions
        self._create_topics()

    @property
    def spark(self) -> SparkSession:
        """The session that runs it: the one given, else a local one for the whole test run."""
        if self._spark is None:
            self._spark = session("local[2]", app_name="pipeline test", banner=False)
        return self._spark

    def defined(self) -> Defined:
        """Return the pipeline as it runs here."""
        plain = load_parameters(self.folder)
        own = {BOOTSTRAP: self.broker.bootstrap} if BOOTSTRAP in plain else {}
        return load(self.folder, {**own, **self.parameters})

    def produce(
        self, source: str, *records: Any, key: Any = None, timestamp_ms: int | None = None
    ) -> None:
        """Append records to the topic of a source: dicts as JSON, or text or bytes."""
        topic = self.defined().pipeline.sources[source].options["subscribe"]
        rows = [_value(each) for each in records]
        pairs = rows if key is None else [(key, row) for row in rows]
        self.broker.produce(topic, *pairs, timestamp_ms=timestamp_ms)

    def run(self, resets: Sequence[str] = ()) -> None:
        """Run to the end, as `headrace pipeline run --once` does; StepFailed if a step fails.

        `resets` are steps that begin anew.
        """
        defined = self.defined()
        with hold(defined):
            claim(defined, tuple(resets))
            Run(defined, self.spark, is_once=True).go()

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Return what a sink has: rows of a table, or the JSON values of a topic."""
        place = self.defined().pipeline.sinks[sink]
        if place.format in _LOG:
            records = self.broker.consume(place.options["topic"])
            return [json.loads(each.value) for each in records if each.value is not None]
        found = self.spark.read.format(place.format).options(**place.options).load()
        return [row.asDict(recursive=True) for row in found.collect()]

    def expect(self, sink: str, rows: Sequence[Mapping[str, Any]], *, only: bool = False) -> None:
        """Assert that a sink has exactly these rows, in any order.

        With `only`, columns that no expected row has are not compared.
        """
        found = self.rows(sink)
        if only:
            names = {name for row in rows for name in row}
            found = [{name: row[name] for name in row if name in names} for row in found]
        have = sorted(json.dumps(row, sort_keys=True, default=str) for row in found)
        want = sorted(json.dumps(dict(row), sort_keys=True, default=str) for row in rows)
        assert have == want, _difference(sink, _without(want, have), _without(have, want))

    def _create_topics(self) -> None:
        pipeline = self.defined().pipeline
        names = [
            each.options.get("subscribe", "")
            for each in pipeline.sources.values()
            if each.format in _LOG
        ]
        names += [
            each.options.get("topic", "") for each in pipeline.sinks.values() if each.format in _LOG
        ]
        wanted = sorted(
            {each.strip() for name in names for each in name.split(",") if each.strip()}
        )

        async def create() -> None:
            async with Cluster(self.broker.bootstrap) as cluster:
                new = [NewTopic(name, partitions=self._partitions) for name in wanted]
                for outcome in (
                    (await create_topics(cluster, new, validate_only=False)).values() if new else ()
                ):
                    if (
                        isinstance(outcome, KafkaError)
                        and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS
                    ):
                        raise outcome

        self.broker.run(create())


def load_parameters(folder: Path) -> Mapping[str, str]:
    """Return the parameters of a pipeline and their defaults."""
    return load(folder).parameters


def _value(record: Any) -> Any:
    return json.dumps(record) if isinstance(record, dict | list) else record


def _without(rows: list[str], others: list[str]) -> list[str]:
    left = list(others)
    found = []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return found


def _difference(sink: str, missing: list[str], extra: list[str]) -> str:
    lines = [f"sink {sink!r} has other rows:"]
    lines += [f"  missing   {row}" for row in missing]
    lines += [f"  not asked {row}" for row in extra]
    return "\n".join(lines)
