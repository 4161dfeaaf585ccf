"""`headrace topics`: create, list, describe, alter, delete."""

from typing import Final

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import (
    CommandGroup,
    bootstrap_beside_config,
    bootstrap_option,
    dry_run_option,
    json_option,
    parse_pairs,
    yes_option,
)
from headrace.cli.output import print_json, print_table, report_deleted
from headrace.cli.running import complete, make_sure, report, usage_error
from headrace.cli.streams import say
from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.metadata import Topic
from headrace.client.offsets import Start
from headrace.client.outcomes import Outcomes
from headrace.client.topics import BROKERS_DEFAULT, CreatedTopic, NewTopic, TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import topic_id_text

names_argument: Final = click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
config_option: Final = click.option(
    "--config", "-c", "pairs", metavar="KEY=VALUE", multiple=True, help="Repeatable."
)


@click.group(cls=CommandGroup)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@names_argument
@click.option(
    "--partitions",
    "-p",
    type=int,
    default=BROKERS_DEFAULT,
    help="Default: the broker's setting.",
)
@click.option(
    "--replication-factor",
    "-r",
    type=int,
    default=BROKERS_DEFAULT,
    help="Default: the broker's setting.",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Ignore topics that exist already.")
@dry_run_option
@json_option
@bootstrap_beside_config
def create(
    names: tuple[str, ...],
    *,
    partitions: int,
    replication_factor: int,
    pairs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Create topics."""
    configs = parse_pairs(pairs, "--config")
    new = [NewTopic(name, partitions, replication_factor, configs) for name in names]

    async def work() -> Outcomes[str, CreatedTopic]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.create_topics(new, validate_only=dry_run)

    outcomes = complete(work())
    if if_not_exists:
        outcomes = {
            name: outcome
            for name, outcome in outcomes.items()
            if not _is_refused_with(outcome, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
    made = [outcome for outcome in outcomes.values() if isinstance(outcome, CreatedTopic)]
    if as_json:
        print_json([_created_json(topic) for topic in made])
    else:
        for topic in made:
            verb = "could create" if dry_run else "created"
            counts = f": {topic.partitions} partitions, {topic.replication_factor} replicas"
            say(f"{verb} {topic.name}{counts if topic.partitions > 0 else ''}")
    report(outcomes, "topic")


@topics.command("list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
@bootstrap_option
def list_(internal: bool, as_json: bool, bootstrap: str) -> None:
    """List topics."""

    async def work() -> list[Topic]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.list_topics(with_internal=internal)

    found = complete(work())
    if as_json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "id": topic_id_text(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "replication_factor": topic.replication_factor,
                    "internal": topic.is_internal,
                }
                for topic in found
            ]
        )
        return
    print_table(
        ("topic", "partitions", "replicas"),
        [(topic.name, len(topic.partitions), topic.replication_factor) for topic in found],
    )


@topics.command()
@names_argument
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """Show partitions, leaders, replicas, start and end offsets, and explicit configs."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap, client_settings()) as admin:
            outcomes = await admin.describe_topics(names)
            found = [topic for topic in outcomes.values() if isinstance(topic, Topic)]
            described = [await _described(admin, topic) for topic in found]
        errors.update(outcomes)
        return described

    errors: Outcomes[str, Topic] = {}
    described = complete(work())
    if as_json:
        print_json(described)
    else:
        for topic in described:
            _print_topic(topic)
    report(errors, "topic")


@topics.command()
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", "-p", type=int, help="The new total number of partitions.")
@config_option
@click.option("--unset", metavar="KEY", multiple=True, help="Reset to the default.")
@dry_run_option
@json_option
@bootstrap_beside_config
def alter(
    name: str,
    *,
    partitions: int | None,
    pairs: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Add partitions to a topic, or change its configs."""
    changed = parse_pairs(pairs, "--config")
    if partitions is None and not changed and not unset:
        usage_error("nothing to alter: give --partitions, --config or --unset")

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            if changed or unset:
                resource = Resource(ResourceType.TOPIC, name)
                await admin.alter_configs(resource, set=changed, unset=unset, validate_only=dry_run)
            if partitions is not None:
                await admin.add_partitions(name, partitions, validate_only=dry_run)

    complete(work())
    if as_json:
        print_json({"topic": name, "altered": not dry_run})
    else:
        say(f"{'could alter' if dry_run else 'altered'} {name}")


@topics.command()
@names_argument
@yes_option
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@json_option
@bootstrap_option
def delete(
    names: tuple[str, ...], *, yes: bool, if_exists: bool, as_json: bool, bootstrap: str
) -> None:
    """Delete topics and all their records. Asks for confirmation on a terminal."""
    make_sure(f"Delete {', '.join(names)} with all records?", is_sure=yes)

    async def work() -> Outcomes[str, None]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.delete_topics(names)

    outcomes = complete(work())
    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    report_deleted(outcomes, "topic", as_json=as_json, fine=fine)


async def _described(admin: Admin, topic: Topic) -> dict[str, object]:
    partitions = [TopicPartition(topic.name, row.index) for row in topic.partitions]
    begins = await admin.list_offsets(dict.fromkeys(partitions, Start.BEGINNING))
    ends = await admin.list_offsets(dict.fromkeys(partitions, Start.END))
    resource = Resource(ResourceType.TOPIC, topic.name)
    configs = (await admin.describe_configs([resource])).get(resource)
    rows = []
    for row, partition in zip(topic.partitions, partitions, strict=True):
        begin, end = begins[partition], ends[partition]
        rows.append(
            {
                "partition": row.index,
                "leader": row.leader_id,
                "leader_epoch": row.leader_epoch,
                "replicas": row.replicas,
                "in_sync": row.in_sync,
                "offline": row.offline,
                "begin_offset": None if isinstance(begin, KafkaError) else begin.offset,
                "end_offset": None if isinstance(end, KafkaError) else end.offset,
            }
        )
    return {
        "topic": topic.name,
        "id": topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {
            config.name: config.value
            for config in (configs if isinstance(configs, list) else ())
            if not config.is_default
        },
        "partitions": rows,
    }


def _print_topic(topic: dict[str, object]) -> None:
    configs, partitions = topic["configs"], topic["partitions"]
    assert isinstance(configs, dict)
    assert isinstance(partitions, list)
    words = " ".join(f"{name}={value}" for name, value in configs.items())
    print_table(
        ("partition", "leader", "epoch", "replicas", "in sync", "begin", "end"),
        [
            (
                row["partition"],
                row["leader"],
                row["leader_epoch"],
                row["replicas"],
                row["in_sync"],
                row["begin_offset"],
                row["end_offset"],
            )
            for row in partitions
        ],
        title=f"{topic['topic']}  id {topic['id']}  {words}".rstrip(),
    )


def _created_json(topic: CreatedTopic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": topic_id_text(topic.topic_id),
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
    }


def _is_refused_with(outcome: object, code: ErrorCode) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code == code
