"""`headrace share consume`: print the records of a queue and acknowledge them."""

import sys
from collections.abc import Callable
from typing import Final

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.record_format import (
    DEFAULT_FORMAT,
    InvalidFormat,
    output_formatter,
)
from headrace.cli.running import complete, usage_error
from headrace.client.fetched import ConsumedRecord
from headrace.client.outcomes import values_of
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.consumer import POLL_RECORDS_MAX, AcknowledgementMode, ShareConsumer
from headrace.wire.share_types import AcquireMode

_TYPES: Final = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-n", "count", type=click.IntRange(min=1), help="Stop after N records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), help="Stop after this long without a record."
)
@click.option(
    "--acknowledge",
    "-a",
    "kind",
    type=click.Choice(list(_TYPES)),
    default="accept",
    help="How to acknowledge a record once it is printed.",
)
@click.option(
    "--format",
    "format_",
    default=DEFAULT_FORMAT,
    help=r"Like kcat's: %t %p %o %k %v %h %T, with \n and \t.",
)
@json_option
@bootstrap_option
def consume(
    group: str,
    topics: tuple[str, ...],
    *,
    count: int | None,
    timeout_ms: int | None,
    kind: str,
    format_: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print records of a queue as they arrive, as a member of its group.

    A record is acknowledged once it is printed; one that could not be printed is released.
    """
    if not group:
        usage_error("GROUP: must not be empty")
    try:
        formatted = output_formatter(format_, as_json=as_json)
    except InvalidFormat as error:
        usage_error(str(error))

    async def work() -> None:
        async with ShareConsumer(
            bootstrap,
            group,
            topics,
            mode=AcknowledgementMode.EXPLICIT,
            max_poll_records=min(count or POLL_RECORDS_MAX, POLL_RECORDS_MAX),
            acquire_mode=AcquireMode.RECORD_LIMIT,
            settings=client_settings(),
        ) as consumer:
            await _print_records(consumer, formatted, _TYPES[kind], count, timeout_ms)

    complete(work(), is_busy=True)


async def _print_records(
    consumer: ShareConsumer,
    formatted: Callable[[ConsumedRecord], bytes],
    kind: AcknowledgeType,
    count: int | None,
    timeout_ms: int | None,
) -> None:
    printed = 0
    while count is None or printed < count:
        records = await consumer.poll(timeout_ms)
        if not records:
            return
        wanted = records if count is None else records[: count - printed]
        sys.stdout.buffer.write(b"".join([formatted(record) for record in wanted]))
        sys.stdout.buffer.flush()
        for record in records[len(wanted) :]:
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
        for record in wanted:
            consumer.acknowledge(record, kind)
        values_of(await consumer.commit())
        printed += len(wanted)
