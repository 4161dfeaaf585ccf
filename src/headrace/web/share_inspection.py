"""What a node knows of a share group's records of a topic: `GET /share/GROUP/TOPIC`.

Partitions that this node leads and that are loaded are shown in full, others with their stored
state only. Looking changes nothing.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from headrace.errors import KafkaError
from headrace.ids import (
    SHARE_STATES_TOPIC,
    UNKNOWN_OFFSET,
    PartitionIndex,
    SharePartitionKey,
    TopicName,
    topic_id_text,
)
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.state import Topic
from headrace.share.breakers import GroupBreaker
from headrace.share.durable import StateSummary
from headrace.share.led_partition import LedSharePartition
from headrace.share.partition.types import InFlight

if TYPE_CHECKING:
    from headrace.server.broker import Broker

SUMMARY_SECONDS_MAX: Final = 5
"""How long to wait for the states of all partitions that are not loaded here."""


class NothingKnown(Exception):
    """Raised for an unknown group or topic; the text says which."""


def split_path(raw_path: bytes) -> tuple[str, str]:
    """Return the decoded group and topic of a path; raise NothingKnown if one is missing.

    Takes the raw path: a group may have a slash in its name.
    """
    parts = raw_path.partition(b"?")[0].decode("latin-1").split("/")
    if len(parts) != 4 or not parts[2] or not parts[3]:
        raise NothingKnown("this page is /share/GROUP/TOPIC, with both names URL-encoded")
    return unquote(parts[2]), unquote(parts[3])


async def inspect_share(broker: "Broker", group_id: str, topic_name: str) -> dict[str, Any]:
    """Return what is known, as plain data; raise NothingKnown if nothing is."""
    topic = broker.image.topic(TopicName(topic_name))
    if topic is None:
        raise NothingKnown(f"there is no topic {topic_name}")
    shares = broker.share_partitions
    led, others = await finish(_find_led(broker, group_id, topic))
    summaries = await _summaries(broker, group_id, topic, others)
    if not led and not summaries:
        raise NothingKnown(f"no share group {group_id!r} has read topic {topic_name}")
    return {
        "group": group_id,
        "topic": topic_name,
        "topic_id": topic_id_text(topic.topic_id),
        "node": int(broker.node_id),
        "breaker": _breaker(shares.breaker_of(group_id)),
        "partitions": await finish(_describe(broker, topic, led, summaries)),
    }


def _find_led(
    broker: "Broker", group_id: str, topic: Topic
) -> Slices[tuple[dict[int, LedSharePartition], list[int]]]:
    """Return the partitions that are loaded here, and those that are not."""
    led: dict[int, LedSharePartition] = {}
    others: list[int] = []
    current = Slice()
    for index in range(len(topic.partitions)):
        found = broker.share_partitions.find(group_id, (topic.topic_id, index))
        if found is not None and found.is_active:
            led[index] = found
        else:
            others.append(index)
        if current.spend():
            yield
    return led, others


def _describe(
    broker: "Broker",
    topic: Topic,
    led: Mapping[int, LedSharePartition],
    summaries: Mapping[int, StateSummary],
) -> Slices[list[dict[str, Any]]]:
    rows = []
    current = Slice()
    for index, row in enumerate(topic.partitions[:]):
        if index not in led and index not in summaries:
            continue
        known = _led(broker, led[index]) if index in led else _not_led(summaries[index])
        rows.append({"partition": index, "leader": int(row.leader), **known})
        runs = len(known.get("in_flight", ())) + len(known.get("archived", ()))
        if current.spend(5 + 3 * runs):
            yield
    return rows


def _led(broker: "Broker", led: LedSharePartition) -> dict[str, Any]:
    machine, now_ms = led.machine, broker.clock.now_ms()
    letters = broker.share_partitions.dead_letters.progress(led)
    return {
        "is_loaded": True,
        "start_offset": machine.start_offset,
        "end_offset": machine.end_offset,
        "high_watermark": led.partition.log.high_watermark,
        "state_epoch": machine.state_epoch,
        "leader_epoch": machine.leader_epoch,
        "delivery_complete_count": machine.delivery_complete_count,
        "waiting_fetches": len(led.waiters),
        "in_flight": [_in_flight(broker, led, each) for each in machine.in_flight(now_ms)],
        "archived": [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "delivery_count": each.delivery_count,
                "cause": each.cause.value,
            }
            for each in machine.archived()
        ],
        "dead_letters": None if letters is None else letters._asdict(),
    }


def _in_flight(broker: "Broker", led: LedSharePartition, run: InFlight) -> dict[str, Any]:
    session = None
    if run.member_id is not None:
        session = broker.share_partitions.sessions.get(led.key.group_id, run.member_id)
    return {
        "first_offset": run.first_offset,
        "last_offset": run.last_offset,
        "state": run.state,
        "delivery_count": run.delivery_count,
        "member_id": run.member_id,
        "client_id": None if session is None else session.client_id,
        "client_host": None if session is None else session.client_host,
        "lock_left_ms": run.lock_left_ms,
        "resting_ms": run.resting_ms,
        "cause": None if run.cause is None else run.cause.value,
    }


def _not_led(summary: StateSummary) -> dict[str, Any]:
    return {
        "is_loaded": False,
        "start_offset": summary.start_offset,
        "end_offset": summary.start_offset - 1,
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "delivery_complete_count": summary.delivery_complete_count,
    }


def _breaker(breaker: GroupBreaker | None) -> dict[str, Any] | None:
    if breaker is None or not breaker.is_on:
        return None
    rejected, records = breaker.counted()
    return {
        "state": breaker.state.value,
        "rejected": rejected,
        "records": records,
        "pause_left_ms": breaker.pause_left_ms(),
        "openings": breaker.openings,
    }


async def _summaries(
    broker: "Broker", group_id: str, topic: Topic, indexes: list[int]
) -> dict[int, StateSummary]:
    """Return the stored states of partitions, if they exist and can be read."""
    # A read would create the state topic, and looking must change nothing.
    if not indexes or broker.image.topic(SHARE_STATES_TOPIC) is None:
        return {}
    loop = asyncio.get_running_loop()
    asked: dict[int, asyncio.Future[StateSummary | KafkaError]] = {}

    def ask() -> Slices[None]:
        current = Slice()
        for index in indexes:
            answer = asked[index] = loop.create_future()
            key = SharePartitionKey(group_id, topic.topic_id, PartitionIndex(index))
            broker.persister.read_summary(key, -1, _setter(answer))
            if current.spend(20):
                yield

    await finish(ask())
    await asyncio.wait(asked.values(), timeout=SUMMARY_SECONDS_MAX)
    found = {index: answer.result() for index, answer in asked.items() if answer.done()}
    return {
        index: summary
        for index, summary in found.items()
        if isinstance(summary, StateSummary) and _is_begun(summary)
    }


def _is_begun(summary: StateSummary) -> bool:
    return summary.state_epoch > 0 or summary.start_offset != UNKNOWN_OFFSET


def _setter(answer: "asyncio.Future[Any]") -> Any:
    def set_result(result: Any) -> None:
        if not answer.done():
            answer.set_result(result)

    return set_result
