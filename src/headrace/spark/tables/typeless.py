"""JSON without what has no type of its own: null, an empty list, an object of nothing else. Pure.

Such a field makes no column. What a table stores of it is null, until another record has shown the
type.
"""

from typing import Any

import msgspec
import pyarrow as pa


def typed_records(records: pa.Table) -> pa.Table:
    """Return records of JSON without the fields that are null or empty."""
    values: list[Any] = records.column("value").to_pylist()
    typed = pa.array([None if each is None else _typed_text(each) for each in values], pa.binary())
    return records.set_column(records.schema.get_field_index("value"), "value", typed)


def has_type(value: Any) -> bool:
    """Return whether a value shows a type."""
    if isinstance(value, dict):
        return any(map(has_type, value.values()))
    return any(map(has_type, value)) if isinstance(value, list) else value is not None


def _typed_text(text: bytes) -> bytes:
    try:
        return msgspec.json.encode(_typed_value(msgspec.json.decode(text)))
    except (msgspec.MsgspecError, RecursionError):
        return text  # it is a dead letter either way


def _typed_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_typed_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _typed_value(each) for name, each in value.items() if has_type(each)}
