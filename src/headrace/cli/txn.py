"""`headrace txn`: list, describe, abort."""

import time

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import CommandGroup, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, make_sure, usage_error
from headrace.cli.streams import say
from headrace.cli.whole_numbers import whole_number
from headrace.client.admin import Admin
from headrace.client.topics import TopicPartition
from headrace.client.transactions import ListedTransaction, TransactionDescription
from headrace.errors import KafkaError


@click.group(cls=CommandGroup)
def txn() -> None:
    """List, describe and abort transactions."""


@txn.command("list")
@click.option("--state", "states", multiple=True, help="Such as Ongoing; repeatable.")
@click.option("--open-for", type=int, metavar="MS", help="Open for at least this long.")
@json_option
@bootstrap_option
def list_(states: tuple[str, ...], open_for: int | None, as_json: bool, bootstrap: str) -> None:
    """List transactional ids and the state of their transactions."""

    async def work() -> list[ListedTransaction]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.list_transactions(states, open_for)

    found = complete(work())
    if as_json:
        print_json(found)
        return
    print_table(
        ("transactional id", "state", "producer", "coordinator"),
        [(row.transactional_id, row.state, row.producer_id, row.coordinator) for row in found],
    )


@txn.command()
@click.argument("transactional_id", metavar="TRANSACTIONAL_ID")
@json_option
@bootstrap_option
def describe(transactional_id: str, as_json: bool, bootstrap: str) -> None:
    """Show a transaction: its start time, its partitions and their first offsets."""

    async def work() -> tuple[TransactionDescription, dict[TopicPartition, int]]:
        async with Admin(bootstrap, client_settings()) as admin:
            described = await admin.describe_transaction(transactional_id)
            outcomes = await admin.describe_producers(described.partitions)
        starts = {
            partition: producer.transaction_start_offset
            for partition, producers in outcomes.items()
            if not isinstance(producers, KafkaError)
            for producer in producers
            if producer.producer_id == described.producer_id
        }
        return described, starts

    described, starts = complete(work())
    if as_json:
        print_json(_json(described, starts))
        return
    age = "not open"
    if described.start_ms >= 0:
        age_ms = max(time.time_ns() // 1_000_000 - described.start_ms, 0)
        age = f"open for {age_ms / 1000:.1f} s of at most {described.timeout_ms / 1000:g} s"
    say(
        f"{described.transactional_id}  {described.state}, {age}; producer "
        f"{described.producer_id} epoch {described.producer_epoch}"
    )
    print_table(
        ("topic", "partition", "began at"),
        [(*partition, starts.get(partition)) for partition in described.partitions],
    )


@txn.command()
@click.argument("transactional_id", metavar="[TRANSACTIONAL_ID]", required=False)
@click.option(
    "--partition",
    metavar="TOPIC:PARTITION",
    help="The partition of a hanging transaction that its coordinator does not know.",
)
@click.option("--producer-id", type=int, help="The producer of the hanging transaction.")
@yes_option
@json_option
@bootstrap_option
def abort(
    transactional_id: str | None,
    *,
    partition: str | None,
    producer_id: int | None,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Abort the open transaction of an id and fence its producer until it restarts.

    With --partition and --producer-id, write the marker that a hanging transaction lacks.
    """
    hanging = None if partition is None else _parse_partition(partition)
    if (transactional_id is None) == (hanging is None) or (hanging is None) != (
        producer_id is None
    ):
        usage_error("give a transactional id, or --partition with --producer-id")
    about = transactional_id or f"producer {producer_id} in {hanging}"
    make_sure(f"Abort the transaction of {about}?", is_sure=yes)

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            if transactional_id is not None:
                await admin.abort_transaction(transactional_id)
            elif hanging is not None and producer_id is not None:
                await admin.abort_hanging_transaction(hanging, producer_id)

    complete(work())
    if as_json:
        print_json({"aborted": about})
    else:
        say(f"aborted {about}")


def _parse_partition(text: str) -> TopicPartition:
    topic, _, digits = text.rpartition(":")
    index = whole_number(digits)
    if not topic or index is None:
        usage_error(f"--partition {text}: write it as TOPIC:PARTITION")
    return TopicPartition(topic, index)


def _json(
    described: TransactionDescription, starts: dict[TopicPartition, int]
) -> dict[str, object]:
    return {
        "transactional_id": described.transactional_id,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.timeout_ms,
        "start_ms": described.start_ms,
        "partitions": [
            {"topic": row.topic, "partition": row.partition, "start_offset": starts.get(row)}
            for row in described.partitions
        ],
    }
