"""What the subcommands of `headrace table` share: the modules that need Spark, and options."""

import base64
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from headrace.cli.client_config import client_settings
from headrace.cli.running import usage_error
from headrace.cli.whole_numbers import whole_number

name_argument: Final = click.argument("name", metavar="TABLE")
master_option: Final = click.option(
    "--master",
    metavar="MASTER",
    default="local[*]",
    help="Where Spark runs: local[4], spark://HOST:PORT, sc://HOST:PORT.",
)


def tables_module(name: str) -> Any:
    """Return a module of `headrace.spark.tables`; usage error if Spark is not installed."""
    try:
        return import_module(f"headrace.spark.tables.{name}")
    except ImportError as error:
        usage_error(f"tables need Spark ({error}): pip install 'headrace[spark,tables]'")


def place_of(bootstrap: str) -> Any:
    """Return the cluster of the running command, and how its `--config` says to connect."""
    options = import_module("headrace.spark.options")
    settings = msgspec.structs.asdict(client_settings())
    return options.Connecting(**{**settings, "bootstrap": bootstrap})


def spark_engine(master: str) -> Any:
    """Return the engine of a session, which is started when there is something to run."""
    engine = tables_module("engine")
    spark = import_module("headrace.spark.session")
    return engine.OnSpark(lambda: spark.session(master, app_name="headrace table", banner=False))


def parse_start(word: str) -> dict[str, Any]:
    """Return where to begin: keyword arguments of `create_table` and `backfill_table`."""
    if (time_ms := whole_number(word)) is not None:
        return {"start_time_ms": time_ms}
    offsets: dict[int, int] = {}
    for part in word.split(","):
        partition, _, offset = (each.strip() for each in part.partition(":"))
        index, begin = whole_number(partition), whole_number(offset)
        if index is None or begin is None:
            usage_error(f"--from {word!r}: earliest, latest, a time in ms, or 0:23,1:345")
        if index in offsets:
            usage_error(f"--from {word!r}: partition {index} has two offsets")
        offsets[index] = begin
    return {"start_offsets": offsets}


def read_schema_file(path: Path | None, kind: str) -> str:
    """Return a schema as it is stored: text, or a descriptor set in base64."""
    if path is None:
        return ""
    if not path.is_file():
        usage_error(f"--schema {path}: no such file")
    if kind != "protobuf":
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            usage_error(f"--schema {path}: not text in UTF-8")
    if path.suffix == ".proto":
        return str(tables_module("protobuf_decoding").compile_proto(path))
    return base64.b64encode(path.read_bytes()).decode()
