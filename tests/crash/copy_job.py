"""A job that copies a topic with exactly-once: read, transform, write and commit in a transaction.

It is started as a program and killed at any moment. It ends by itself if its producer cannot go on;
whoever runs it starts it again.
"""

import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

BATCH_RECORDS = 15
CALL_SECONDS = 5
TRANSACTION_SECONDS_MAX = 2
"""A transaction that takes longer ends the job by SIGALRM. librdkafka's send_offsets_to_transaction
may wait for ever, whatever its timeout, once the group's coordinator was away (its issues 5456 and
5511); a new job goes on where the last transaction ended."""
CANNOT_GO_ON = 3


def transform(value: bytes) -> bytes:
    return b"%d" % (int(value) * 2 + 1)


def main(bootstrap: str, source: str, sink: str) -> None:
    common = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "log_level": 0,
    }
    consumer = Consumer(
        {
            **common,
            "group.id": "copy",
            "group.instance.id": "copy",  # a job that comes back does not wait for its own ghost
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    producer = Producer({**common, "transactional.id": "copy", "linger.ms": 1})
    _patiently(lambda: producer.init_transactions(CALL_SECONDS))
    consumer.subscribe([source])
    while True:
        messages = [row for row in consumer.consume(BATCH_RECORDS, 0.1) if row.error() is None]
        if messages:
            signal.setitimer(signal.ITIMER_REAL, TRANSACTION_SECONDS_MAX)
            try:
                _copy(consumer, producer, messages, sink)
            except KafkaException as error:
                _take_back(consumer, producer, error.args[0])
            signal.setitimer(signal.ITIMER_REAL, 0)


def _copy(consumer: Consumer, producer: Producer, messages: list[Message], sink: str) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(sink, transform(message.value()), partition=message.partition())
    positions = consumer.position(consumer.assignment())
    moved = [row for row in positions if row.offset >= 0]
    metadata = consumer.consumer_group_metadata()
    _patiently(lambda: producer.send_offsets_to_transaction(moved, metadata, CALL_SECONDS))
    _patiently(lambda: producer.commit_transaction(CALL_SECONDS))


def _take_back(consumer: Consumer, producer: Producer, error: KafkaError) -> None:
    """Abort, and read again what the transaction would have copied."""
    print(f"aborting: {error}", file=sys.stderr, flush=True)
    if error.fatal() or not error.txn_requires_abort():
        sys.exit(CANNOT_GO_ON)
    _patiently(lambda: producer.abort_transaction(CALL_SECONDS))
    assigned = consumer.assignment()
    for place in _patiently(lambda: consumer.committed(assigned, CALL_SECONDS)):
        offset = max(place.offset, 0)
        consumer.seek(TopicPartition(place.topic, place.partition, offset))


def _patiently(call: Callable[[], Any]) -> Any:
    """Repeat a call while its error says that this may help."""
    deadline = time.monotonic() + CALL_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            reason = error.args[0]
            if not reason.retriable() or time.monotonic() > deadline:
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
