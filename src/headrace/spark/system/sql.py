"""System frames by name: as a DataFrame, and as tables of a database in SQL."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from headrace.client.settings import DEFAULT_BOOTSTRAP
from headrace.spark.options import InvalidOption
from headrace.spark.system.frames import FRAMES, find_frame
from headrace.spark.system.source import SystemDataSource, system_options

DATABASE: Final = "headrace"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def frame(
    spark: SparkSession, name: str, bootstrap: str = DEFAULT_BOOTSTRAP, **options: str
) -> DataFrame:
    """Return a system frame of the cluster at `bootstrap`; `options` are those for connections."""
    given = _given(name, bootstrap, options)
    return spark.read.format(SystemDataSource.name()).options(**given).load()


def attach(
    spark: SparkSession,
    bootstrap: str = DEFAULT_BOOTSTRAP,
    *,
    database: str = DATABASE,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """Make every frame of a cluster a table of `database`; return the names of the tables.

    The tables live in the session's catalog and hold no data: each query asks the cluster. Tables
    of the same names are replaced if they are system frames too. For several clusters, choose
    several databases.
    """
    if not _NAME.fullmatch(database):
        raise InvalidOption(f"database {database!r}: letters, digits and underscores make a name")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    tables = []
    for each in FRAMES.values():
        source = _source_of(database, _given(each.name, bootstrap, options or {}))
        spark.dataSource.register(source)
        table = f"{database}.{each.name}"
        _drop(spark, table)
        spark.sql(f"CREATE TABLE {table} USING `{source.name()}`")
        tables.append(table)
    return tables


def _drop(spark: SparkSession, table: str) -> None:
    """Drop a system table; refuse to drop a table of the user's."""
    if not spark.catalog.tableExists(table):
        return
    columns = {each.name: each.description for each in spark.catalog.listColumns(table)}
    wanted = find_frame(table.rpartition(".")[2]).columns
    if not columns.items() & {(each.name, each.doc) for each in wanted}:
        raise InvalidOption(
            f"there is a table {table} that is no system frame: choose another database"
        )
    spark.sql(f"DROP TABLE {table}")


def _given(name: str, bootstrap: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a frame, checked here: Spark would only say so when it plans."""
    given = {**options, "frame": find_frame(name).name, "kafka.bootstrap.servers": bootstrap}
    system_options(given)
    return given


def _source_of(database: str, given: Mapping[str, str]) -> type[SystemDataSource]:
    """Return a format for one table, which knows its options.

    Spark hands a reader of a table only the options of the query, not those of the table. A class
    that no module has is sent to Spark's processes by value, its options with it.
    """
    label = f"headrace-system-{database}-{given['frame']}".lower()

    def name(cls: type[Any]) -> str:
        return label

    body = {"name": classmethod(name), "PRESET": dict(given)}
    return type(f"Table_{database}_{given['frame']}", (SystemDataSource,), body)
