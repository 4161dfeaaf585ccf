"""`headrace table create`: define a table, and make it."""

from typing import Any

import click

from headrace.cli.options import FilePath, bootstrap_option, json_option, parse_pairs
from headrace.cli.output import print_json
from headrace.cli.streams import say
from headrace.cli.table_modules import (
    name_argument,
    parse_start,
    place_of,
    read_schema_file,
    tables_module,
)


@click.command()
@name_argument
@click.option("--topic", required=True, help="The topic that becomes the table.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", "avro", "protobuf", "raw"]),
    default="json",
    help="What values are.",
)
@click.option(
    "--to",
    type=click.Choice(["iceberg", "delta", "parquet"]),
    default="iceberg",
    help="What is written.",
)
@click.option(
    "--location", required=True, metavar="DIR|URL", help="A folder, or s3://bucket/prefix."
)
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    help="upsert: the last record of a key is its row, a tombstone deletes it.",
)
@click.option(
    "--column", "columns", metavar="NAME:TYPE", multiple=True, help="A JSON column; repeatable."
)
@click.option(
    "--evolve/--no-evolve", default=True, help="Whether new fields of JSON become columns."
)
@click.option("--schema", type=FilePath(), help="The Avro schema, or a Protobuf .proto or .desc.")
@click.option("--message", default="", help="The message type of Protobuf.")
@click.option("--registry-header", is_flag=True, help="Values begin with a registry's 5 bytes.")
@click.option(
    "--partition-by",
    metavar="FIELD",
    multiple=True,
    help="country, day(_timestamp), bucket(16, id); repeatable.",
)
@click.option("--sort-by", metavar="COLUMN", multiple=True, help="Sort rows in files; repeatable.")
@click.option(
    "--rule",
    "rules",
    metavar="RULE",
    multiple=True,
    help="'id not null', 'price >= 0'; repeatable.",
)
@click.option(
    "--on-violation",
    type=click.Choice(["dead-letter", "fail", "count"]),
    default="dead-letter",
    help="What becomes of a record that breaks a rule.",
)
@click.option(
    "--on-bad-record",
    type=click.Choice(["dead-letter", "fail"]),
    default="dead-letter",
    help="What becomes of a record that cannot be decoded.",
)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    default="earliest",
    help="earliest, latest, a time in ms, or 0:23,1:345 for offsets.",
)
@click.option(
    "--catalog",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="A catalog of pyiceberg; repeatable. Default: SQLite in the location.",
)
@click.option("--store-endpoint", default="", metavar="URL", help="Of an S3 that is not Amazon's.")
@click.option("--store-region", default="", help="Of the bucket.")
@click.option("--store-allow-http", is_flag=True, help="Allow an endpoint without TLS.")
@click.option(
    "--file-bytes",
    type=click.IntRange(min=1),
    help="How large data files become; 128 MiB by default.",
)
@click.option(
    "--batch-records", type=click.IntRange(min=1), help="The most records of a batch; 1,000,000."
)
@json_option
@bootstrap_option
def create(name: str, *, as_json: bool, bootstrap: str, **given: Any) -> None:
    """Create a table for a topic. `headrace table run` fills it."""
    administration = tables_module("administration")
    more = {
        "format": given["format_"],
        "evolves": given["evolve"],
        "schema_text": read_schema_file(given["schema"], given["format_"]),
        "has_registry_header": given["registry_header"],
        "fails_on_bad_record": given["on_bad_record"] == "fail",
        "catalog": parse_pairs(given["pairs"], "--catalog"),
        **_start(given["start"]),
        **{
            each: given[each]
            for each in (
                *("topic", "to", "location", "mode", "columns", "message", "partition_by"),
                *("sort_by", "rules", "on_violation", "store_endpoint", "store_region"),
                "store_allow_http",
            )
        },
        **{each: given[each] for each in ("file_bytes", "batch_records") if given[each]},
    }
    made = administration.create_table(place_of(bootstrap), name, **more)
    if as_json:
        print_json({"table": made.name, "topic": made.topic, "location": made.location})
        return
    say(f"created table {made.name} for topic {made.topic} in {made.location}")
    say(f"fill it with: headrace table run {made.name}")


def _start(word: str) -> dict[str, Any]:
    return {"start": word} if word in ("earliest", "latest") else parse_start(word)
