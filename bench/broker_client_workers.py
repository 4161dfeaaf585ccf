"""A client as a program of its own: it produces or consumes, and prints records a second.

    python -m bench.broker_client_workers KIND ACTION BOOTSTRAP TOPIC RECORDS

KIND is `headrace`, `aiokafka` or `confluent`. ACTION is `produce` (record by record, then a flush),
`iterate` (record by record) or `poll` (as many at once as the client gives). The asyncio clients
run on uvloop. Time begins with the first record: what a client does before that is not measured.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import aiokafka
import confluent_kafka
import uvloop

from headrace.client import Consumer, Producer, Start
from headrace.client.settings import ProducerSettings

VALUE: Final = b"x" * 100
POLL_SECONDS: Final = 1.0
LINGER_MS: Final = 5
"""As long as librdkafka waits by default."""


async def headrace_produce(bootstrap: str, topic: str, records: int) -> float:
    limits = ProducerSettings(linger_ms=LINGER_MS)
    async with Producer(bootstrap, limits=limits) as producer:
        await producer.deliver(topic, VALUE)
        begin = time.monotonic()
        for _ in range(records):
            await producer.send(topic, VALUE)
        await producer.flush()
        return time.monotonic() - begin


async def aiokafka_produce(bootstrap: str, topic: str, records: int) -> float:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=LINGER_MS
    )
    async with producer:
        await producer.send_and_wait(topic, VALUE)
        begin = time.monotonic()
        for _ in range(records):
            await producer.send(topic, VALUE)
        await producer.flush()
        return time.monotonic() - begin


async def headrace_iterate(bootstrap: str, topic: str, records: int) -> float:
    async with Consumer(bootstrap) as consumer:
        await consumer.assign(topic, Start.BEGINNING)
        begin, count = 0.0, 0
        async for record in consumer:
            begin = begin or time.monotonic()
            count += record.value is not None
            if count >= records:
                break
        return time.monotonic() - begin


async def headrace_poll(bootstrap: str, topic: str, records: int) -> float:
    async with Consumer(bootstrap) as consumer:
        await consumer.assign(topic, Start.BEGINNING)
        begin, count = 0.0, 0
        while count < records:
            for record in await consumer.poll(POLL_SECONDS * 1000):
                begin = begin or time.monotonic()
                count += record.value is not None
        return time.monotonic() - begin


def _aiokafka_consumer(bootstrap: str, topic: str) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )


async def aiokafka_iterate(bootstrap: str, topic: str, records: int) -> float:
    async with _aiokafka_consumer(bootstrap, topic) as consumer:
        begin, count = 0.0, 0
        async for record in consumer:
            begin = begin or time.monotonic()
            count += record.value is not None
            if count >= records:
                break
        return time.monotonic() - begin


async def aiokafka_poll(bootstrap: str, topic: str, records: int) -> float:
    async with _aiokafka_consumer(bootstrap, topic) as consumer:
        begin, count = 0.0, 0
        while count < records:
            for batch in (await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))).values():
                for record in batch:
                    begin = begin or time.monotonic()
                    count += record.value is not None
        return time.monotonic() - begin


def confluent_produce(bootstrap: str, topic: str, records: int) -> float:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 3}
    )
    producer.produce(topic, VALUE)
    producer.flush()
    begin = time.monotonic()
    for _ in range(records):
        try:
            producer.produce(topic, VALUE)
        except BufferError:
            producer.poll(POLL_SECONDS)
            producer.produce(topic, VALUE)
    producer.flush()
    return time.monotonic() - begin


def _confluent_consumer(bootstrap: str, topic: str) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 3}
    )
    found = consumer.list_topics(topic).topics[topic].partitions
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, each, beginning) for each in found])
    return consumer


def confluent_iterate(bootstrap: str, topic: str, records: int) -> float:
    consumer = _confluent_consumer(bootstrap, topic)
    begin, count = 0.0, 0
    while count < records:
        if (message := consumer.poll(POLL_SECONDS)) is not None:
            begin = begin or time.monotonic()
            count += message.value() is not None
    taken = time.monotonic() - begin
    consumer.close()
    return taken


def confluent_poll(bootstrap: str, topic: str, records: int) -> float:
    consumer = _confluent_consumer(bootstrap, topic)
    begin, count = 0.0, 0
    while count < records:
        for message in consumer.consume(1000, POLL_SECONDS):
            begin = begin or time.monotonic()
            count += message.value() is not None
    taken = time.monotonic() - begin
    consumer.close()
    return taken


ASYNC: Final[dict[str, Callable[[str, str, int], Awaitable[float]]]] = {
    "headrace produce": headrace_produce,
    "headrace iterate": headrace_iterate,
    "headrace poll": headrace_poll,
    "aiokafka produce": aiokafka_produce,
    "aiokafka iterate": aiokafka_iterate,
    "aiokafka poll": aiokafka_poll,
}
BLOCKING: Final[dict[str, Callable[[str, str, int], float]]] = {
    "confluent produce": confluent_produce,
    "confluent iterate": confluent_iterate,
    "confluent poll": confluent_poll,
}


def main() -> None:
    kind, action, bootstrap, topic, records = sys.argv[1:]
    name, count = f"{kind} {action}", int(records)
    if name in ASYNC:

        async def run() -> float:
            return await ASYNC[name](bootstrap, topic, count)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seconds = runner.run(run())
    else:
        seconds = BLOCKING[name](bootstrap, topic, count)
    print(count / seconds)


if __name__ == "__main__":
    main()
