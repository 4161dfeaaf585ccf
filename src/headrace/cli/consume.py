"""`headrace consume`: print records from any offset to the end, or forever."""

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.record_format import (
    DEFAULT_FORMAT,
    InvalidFormat,
    output_formatter,
)
from headrace.cli.running import complete, usage_error
from headrace.cli.whole_numbers import whole_number
from headrace.client.consumer import Consumer
from headrace.client.fetched import ConsumedRecord
from headrace.client.offsets import Start
from headrace.client.topics import TopicPartition


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record.")
@click.option(
    "--offset", "-o", help="Start there: a number, `beginning`, `end`, or -N for the last N."
)
@click.option("--from-time", help="Start there: ms since 1970, or like 2026-01-31T08:00:00 (UTC).")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=int,
    multiple=True,
    help="Only this partition; repeatable.",
)
@click.option("-n", "count", type=click.IntRange(min=0), help="Stop after N records.")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Wait for new records; starts at the end unless told otherwise.",
)
@click.option(
    "--format",
    "format_",
    default=DEFAULT_FORMAT,
    help=r"Like kcat's: %t %p %o %k %v %h %T, with \n and \t.",
)
@click.option("--committed", is_flag=True, help="Skip records of aborted transactions.")
@json_option
@bootstrap_option
def consume(  # noqa: PLR0913  an option each
    topic: str,
    *,
    from_beginning: bool,
    offset: str | None,
    from_time: str | None,
    partitions: tuple[int, ...],
    count: int | None,
    follow: bool,
    format_: str,
    committed: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print existing records, oldest first, or with --follow new ones."""
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        usage_error("give one of --from-beginning, --offset and --from-time")
    start = _parse_offset(offset, is_following=follow and not from_beginning)
    timestamp_ms = None if from_time is None else parse_time(from_time)
    try:
        formatted = output_formatter(format_, as_json=as_json)
    except InvalidFormat as error:
        usage_error(str(error))

    async def work() -> None:
        reset = Start.BEGINNING if start is Start.BEGINNING else None
        chosen = partitions or None
        async with Consumer(
            bootstrap, client_settings(), read_committed=committed, reset=reset
        ) as consumer:
            if timestamp_ms is not None:
                await consumer.assign_from_time(topic, timestamp_ms, chosen, until_end=not follow)
            elif start < Start.BEGINNING:
                await _assign_last(consumer, topic, chosen, -start - _LAST, until_end=not follow)
            else:
                await consumer.assign(topic, start, chosen, until_end=not follow)
            await _print_records(consumer, formatted, count)

    complete(work(), is_busy=True)


_LAST = 2
"""`-N` is stored as -N-2, to avoid the two values of `Start`."""


async def _print_records(
    consumer: Consumer, formatted: Callable[[ConsumedRecord], bytes], count: int | None
) -> None:
    write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
    left = count
    while left is None or left > 0:
        records = await consumer.poll(records_max=left)
        if not records:
            return
        write(b"".join([formatted(record) for record in records]))
        flush()
        if left is not None:
            left -= len(records)


async def _assign_last(
    consumer: Consumer,
    topic: str,
    partitions: Iterable[int] | None,
    count: int,
    *,
    until_end: bool,
) -> None:
    """Start `count` offsets before the end of each partition, or at its beginning."""
    await consumer.assign(topic, Start.BEGINNING, partitions, until_end=until_end)
    begins = consumer.positions
    ends = await consumer.ends(begins)
    for partition, begin in begins.items():
        consumer.seek(TopicPartition(*partition), max(begin, ends[partition] - count))


def _parse_offset(text: str | None, *, is_following: bool) -> int | Start:
    if text is None:
        return Start.END if is_following else Start.BEGINNING
    if text in ("beginning", "end"):
        return Start[text.upper()]
    try:
        number = int(text)
    except ValueError:
        usage_error(f"--offset {text}: a number, `beginning`, `end`, or -N for the last N")
    return number if number >= 0 else number - _LAST


def parse_time(text: str) -> int:
    """Parse ms since 1970 or an ISO date and time, UTC unless it has an offset.

    No record is older than 1970: an earlier time is 0, as negative ones say something else.
    """
    if (number := whole_number(text)) is not None:
        return number
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        usage_error(f"--from-time {text}: ms since 1970, or like 2026-01-31T08:00:00")
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max(int(time.timestamp() * 1000), 0)
