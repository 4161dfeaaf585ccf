"""`headrace topics`: create, list, describe, alter, delete."""

import sys
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from headrace.cli.output import print_json, print_table
from headrace.cli.running import EXIT_REFUSED, complain, complete, usage_error
from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.metadata import Topic
from headrace.client.offsets import Start
from headrace.client.outcomes import Outcomes
from headrace.client.topics import BROKERS_DEFAULT, CreatedTopic, NewTopic, TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import topic_id_text

topics = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
Configs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="Repeatable.")
]


@topics.command()
def create(
    names: Names,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="The broker's default if not given.")
    ] = BROKERS_DEFAULT,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="The broker's default if not given.")
    ] = BROKERS_DEFAULT,
    config: Configs = None,
    *,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is fine.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create topics."""
    configs = parse_pairs(config or [], "--config")
    new = [NewTopic(name, partitions, replication_factor, configs) for name in names]

    async def work() -> Outcomes[str, CreatedTopic]:
        async with Admin(bootstrap) as admin:
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
            print(f"{verb} {topic.name}{counts if topic.partitions > 0 else ''}")
    _report(outcomes)


@topics.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List topics."""

    async def work() -> list[Topic]:
        async with Admin(bootstrap) as admin:
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
def describe(
    names: Names, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Show partitions, their leaders and replicas, where they begin and end, and set configs."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap) as admin:
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
    _report(errors)


@topics.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="How many there are to be in all.")
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default.")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions to a topic, or change its configs."""
    changed = parse_pairs(config or [], "--config")
    if partitions is None and not changed and not unset:
        usage_error("nothing to alter: give --partitions, --config or --unset")

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            if changed or unset:
                resource = Resource(ResourceType.TOPIC, name)
                await admin.alter_configs(
                    resource, set=changed, unset=unset or (), validate_only=dry_run
                )
            if partitions is not None:
                await admin.add_partitions(name, partitions, validate_only=dry_run)

    complete(work())
    if as_json:
        print_json({"topic": name, "altered": not dry_run})
    else:
        print(f"{'could alter' if dry_run else 'altered'} {name}")


@topics.command()
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is fine.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and everything in them. Asks first if a person is there to answer."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True, err=True)

    async def work() -> Outcomes[str, None]:
        async with Admin(bootstrap) as admin:
            return await admin.delete_topics(names)

    outcomes = complete(work())
    if if_exists:
        outcomes = {
            name: outcome
            for name, outcome in outcomes.items()
            if not _is_refused_with(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        }
    gone = [name for name, outcome in outcomes.items() if outcome is None]
    if as_json:
        print_json(gone)
    else:
        for name in gone:
            print(f"deleted {name}")
    _report(outcomes)


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


def _report(
    outcomes: Outcomes[str, CreatedTopic] | Outcomes[str, Topic] | Outcomes[str, None],
) -> None:
    """Complain about each that was refused; leave with a code that says so."""
    refused = {
        name: outcome for name, outcome in outcomes.items() if isinstance(outcome, KafkaError)
    }
    for name, error in refused.items():
        complain(error, f"topic {name!r}")
    if refused:
        raise typer.Exit(EXIT_REFUSED)
