"""The catalog in a table's location, and how pyiceberg is told of it.

pyiceberg's SQL catalog keeps tables under the name that its user calls the catalog, so that
others, who call it `default` or `local`, would not find them. Therefore each table has a row for
every usual name, and triggers keep the rows the same: in one transaction, so that a commit under
any of the names is a commit for all, and the check for a concurrent one holds for all.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

from headrace.remote.store_options import StoreOptions, parse_store_url
from headrace.spark.tables.definition import Definition, InvalidTable

CATALOG: Final = "headrace"
NAMES: Final = (
    *("headrace", "default", "local", "sql", "sqlite", "iceberg", "catalog", "main", "test"),
    *("demo", "dev", "prod", "lake", "lakehouse", "warehouse", "my_catalog", "sql_catalog"),
    *("local_catalog", "test_catalog", "pyiceberg", "spark", "duckdb", "rest", "any", "reader"),
    *("check", "cat", "c", "t", "x"),
)
"""Under what names users of pyiceberg find the tables."""
FILE: Final = "catalog.db"
BUSY_SECONDS: Final = 30
"""How long a commit waits for another one to the same catalog."""

_TRIGGERS: Final = """
create table if not exists headrace_catalog_names (name text primary key);
create trigger if not exists headrace_table_insert after insert on iceberg_tables
when new.catalog_name = 'headrace' begin
  insert or ignore into iceberg_tables
    (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location,
     iceberg_type)
  select name, new.table_namespace, new.table_name, new.metadata_location,
    new.previous_metadata_location, new.iceberg_type
  from headrace_catalog_names;
end;
create trigger if not exists headrace_table_update
after update of metadata_location on iceberg_tables begin
  update iceberg_tables set metadata_location = new.metadata_location,
    previous_metadata_location = new.previous_metadata_location
  where table_namespace = new.table_namespace and table_name = new.table_name
    and metadata_location is old.metadata_location;
end;
create trigger if not exists headrace_table_delete after delete on iceberg_tables begin
  delete from iceberg_tables
  where table_namespace = old.table_namespace and table_name = old.table_name;
end;
create trigger if not exists headrace_namespace_insert after insert on iceberg_namespace_properties
when new.catalog_name = 'headrace' begin
  insert or ignore into iceberg_namespace_properties
    (catalog_name, namespace, property_key, property_value)
  select name, new.namespace, new.property_key, new.property_value from headrace_catalog_names;
end;
"""
_EXISTING: Final = """
insert or ignore into iceberg_namespace_properties
  (catalog_name, namespace, property_key, property_value)
select each.name, old.namespace, old.property_key, old.property_value
from iceberg_namespace_properties old, headrace_catalog_names each
where old.catalog_name = 'headrace';
insert or ignore into iceberg_tables
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location,
   iceberg_type)
select each.name, old.table_namespace, old.table_name, old.metadata_location,
  old.previous_metadata_location, old.iceberg_type
from iceberg_tables old, headrace_catalog_names each
where old.catalog_name = 'headrace';
"""


def catalog_properties(definition: Definition, options: StoreOptions) -> dict[str, str]:
    """Return what pyiceberg needs to open the catalog of a table, and its files."""
    url = parse_store_url(definition.location, options)
    found = {"warehouse": url.text, **_file_properties(definition, options)}
    if definition.catalog:
        return {**found, **definition.catalog}
    if url.scheme != "file":
        raise InvalidTable(
            f"a table in {url.text} needs a catalog: --catalog type=rest --catalog uri=..., or a "
            "database, --catalog type=sql --catalog uri=postgresql+psycopg2://..."
        )
    path = Path(url.path) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    return {**found, "type": "sql", "uri": f"sqlite:///{path}"}


def share_names(location: str) -> None:
    """Make the catalog of a folder the same under all names."""
    path = Path(parse_store_url(location).path) / FILE
    with sqlite3.connect(path, timeout=BUSY_SECONDS) as database:
        database.executescript(_TRIGGERS)
        database.executemany(
            "insert or ignore into headrace_catalog_names values (?)",
            [(name,) for name in NAMES if name != CATALOG],
        )
        database.executescript(_EXISTING)
    database.close()


def _file_properties(definition: Definition, options: StoreOptions) -> dict[str, str]:
    """Return how pyiceberg reaches the files: credentials come from the environment."""
    found = {}
    if definition.store_endpoint:
        found["s3.endpoint"] = definition.store_endpoint
    if definition.store_region:
        found["s3.region"] = definition.store_region
    key = options.access_key_id or os.environ.get("AWS_ACCESS_KEY_ID")
    secret = options.secret_access_key or os.environ.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        found |= {"s3.access-key-id": key, "s3.secret-access-key": secret}
    return found
