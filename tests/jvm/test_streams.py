"""Kafka Streams counts words exactly once, whoever dies: an instance, the broker.

The same is run against Apache Kafka, which shows that the test asks for what Kafka gives.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.headrace_process import HeadraceProcess
from tests.jvm.kafka_broker import kafka
from tests.jvm.word_count import (
    NODE_SETTINGS,
    WORDS_A_LINE,
    Input,
    Instance,
    Output,
    create_topics,
)

APPLICATION = "word-count"
LINES_A_PART = 400
KAFKA_SETTINGS = {
    **NODE_SETTINGS,
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
}
"""Kafka's controller lets a killed broker come back when the old one's session is over."""


@contextmanager
def killed_headrace(folder: Path, port: int) -> Iterator[str]:
    node = HeadraceProcess(folder, NODE_SETTINGS, port=port)
    try:
        yield node.bootstrap
    finally:
        node.kill()


def killed_broker(kind: str, folder: Path, port: int = 0) -> AbstractContextManager[str]:
    """A broker on the folder, which is killed at the end of the block."""
    if kind == "kafka":
        return kafka(folder, is_killed=True, extra=KAFKA_SETTINGS, port=port)
    return killed_headrace(folder, port)


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        ("headrace", "classic"),
        ("headrace", "streams"),
        # Says that it is the brokers that are alike, not that the test sees nothing.
        pytest.param("kafka", "streams", marks=pytest.mark.exhaustive),
    ],
)
def test_words_are_counted_once_though_an_instance_and_the_broker_are_killed(
    kind: str, protocol: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:

        def start(name: str) -> Instance:
            instance = Instance(bootstrap, APPLICATION, protocol, tmp_path / name)
            stack.callback(instance.kill)
            return instance

        with killed_broker(kind, tmp_path / "broker") as bootstrap:
            create_topics(bootstrap)
            lines, counts = Input(bootstrap), Output(bootstrap)
            stack.callback(counts.close)
            survivor, victim = start("survivor"), start("victim")
            for instance in (survivor, victim):
                instance.wait_until_running()
            # Something of the second part is counted, and the rest of it is being counted.
            lines.write(LINES_A_PART)
            counts.wait_for(lines.words.total(), [survivor, victim])
            lines.write(LINES_A_PART)
            counts.wait_for(counts.found + WORDS_A_LINE, [survivor, victim])
            victim.kill()
            lines.write(LINES_A_PART)
            returned = start("returned")
            counts.wait_for(lines.words.total(), [survivor, returned])
            returned.wait_until_running()
            lines.write(LINES_A_PART)
            counts.wait_for(counts.found + WORDS_A_LINE, [survivor, returned])

        port = int(bootstrap.rpartition(":")[2])
        with killed_broker(kind, tmp_path / "broker", port):
            lines.write(LINES_A_PART)
            counts.wait_for(lines.words.total(), [survivor, returned])
            for instance in (survivor, returned):
                instance.stop()
            counts.read_to_end()

    assert counts.counts == {word: list(range(1, times + 1)) for word, times in lines.words.items()}
