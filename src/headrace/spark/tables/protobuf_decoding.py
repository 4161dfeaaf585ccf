"""Protobuf values to columns, with the descriptors of the user's message.

A field of proto3 without presence has its default where it is not set, as everywhere. Enums are
their names, maps lists of key and value, and google.protobuf.Timestamp a time. A message that
contains itself is refused when the table is created.
"""

import base64
import datetime
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.spark.tables.avro_decoding import REGISTRY_BYTES
from headrace.spark.tables.column_types import DEPTH_MAX
from headrace.spark.tables.decoding import (
    BadValue,
    BinaryArray,
    Decoded,
    decode_rows,
    short_reason,
)
from headrace.spark.tables.definition import METADATA, Definition, InvalidTable, suggest
from headrace.spark.tables.extras import import_extra

_KINDS: Final[dict[int, pa.DataType]] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.int64(),
    5: pa.int32(),
    6: pa.int64(),
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
"""By the numbers of FieldDescriptorProto.Type; unsigned ones get the next larger type."""
_MESSAGES: Final = frozenset({10, 11})
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ProtobufDecoder:
    """Values of one message type."""

    def __init__(self, definition: Definition, columns: pa.Schema) -> None:
        self._message = _message_class(definition)
        self._columns = columns
        self._has_header = definition.has_registry_header
        self._error = import_extra("google.protobuf.message").DecodeError

    def decode(self, values: BinaryArray) -> Decoded:
        rows: list[tuple[int, dict[str, Any]]] = []
        bad: list[BadValue] = []
        found: list[Any] = values.to_pylist()
        for index, value in enumerate(found):
            try:
                message = self._message.FromString(self._body(value))
                if not message.IsInitialized():
                    missing = ", ".join(message.FindInitializationErrors())
                    raise ValueError(f"required fields are missing: {missing}")
                rows.append((index, _row(message)))
            except (self._error, ValueError, OverflowError) as error:
                bad.append(BadValue(index, f"not of the message type: {short_reason(error)}"))
        return decode_rows(rows, bad, self._columns)

    def _body(self, value: bytes) -> bytes:
        """Return the message behind a registry's header: its id, and the message's index."""
        if not self._has_header:
            return value
        if len(value) <= REGISTRY_BYTES or value[0]:
            raise ValueError("it does not begin with the header of a registry")
        at = REGISTRY_BYTES
        count, at = _zigzag(value, at)
        for _ in range(count):
            _, at = _zigzag(value, at)
        return value[at:]


def protobuf_columns(definition: Definition) -> pa.Schema:
    """Return the columns of a message type; InvalidTable for what a table cannot have."""
    descriptor = _message_class(definition).DESCRIPTOR
    fields = [pa.field(each.name, _kind(each, each.name, 0)) for each in descriptor.fields]
    clash = sorted({each.name for each in fields}.intersection(METADATA.names))
    if clash:
        raise InvalidTable(f"--message: column {clash[0]!r} is one that every table has")
    if not fields:
        raise InvalidTable(f"--message {definition.message}: it has no fields")
    return pa.schema(fields)


def compile_proto(path: Path) -> str:
    """Return the descriptor set of a .proto file and of what it imports, in base64."""
    protoc = import_extra("grpc_tools.protoc")
    grpc_tools = import_extra("grpc_tools")
    builtin = Path(str(grpc_tools.__file__)).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        code = protoc.main(
            [
                "protoc",
                f"-I{path.resolve().parent}",
                f"-I{builtin}",
                f"--descriptor_set_out={out}",
                "--include_imports",
                path.name,
            ]
        )
        if code:
            raise InvalidTable(f"--schema {path}: protoc does not take it")
        return base64.b64encode(out.read_bytes()).decode()


def _message_class(definition: Definition) -> Any:
    descriptor_pb2 = import_extra("google.protobuf.descriptor_pb2")
    pool_module = import_extra("google.protobuf.descriptor_pool")
    factory = import_extra("google.protobuf.message_factory")
    pool = pool_module.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(definition.schema_text, validate=True)
        )
        for each in files.file:
            pool.Add(each)
        names = [
            f"{each.package}.{message.name}".lstrip(".")
            for each in files.file
            for message in each.message_type
        ]
    except Exception as error:  # protobuf raises several kinds
        raise InvalidTable(
            f"--schema is not a set of descriptors (protoc --descriptor_set_out "
            f"--include_imports): {short_reason(error)}"
        ) from None
    try:
        return factory.GetMessageClass(pool.FindMessageTypeByName(definition.message))
    except KeyError:
        raise InvalidTable(
            f"--message {definition.message!r}: not in the schema"
            f"{suggest(definition.message, names)}; there are {', '.join(names[:10])}"
        ) from None


def _kind(field: Any, where: str, depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise InvalidTable(f"--message: {where} contains itself, and a column cannot")
    if field.type in _MESSAGES:
        kind = _message_kind(field.message_type, where, depth + 1)
    else:
        kind = _KINDS[field.type]
    return pa.list_(pa.field("element", kind)) if _is_repeated(field) else kind


def _message_kind(descriptor: Any, where: str, depth: int) -> pa.DataType:
    if descriptor.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if depth > DEPTH_MAX or not descriptor.fields:
        raise InvalidTable(f"--message: {where} has no fields, or contains itself")
    return pa.struct(
        [
            pa.field(each.name, _kind(each, f"{where}.{each.name}", depth + 1))
            for each in descriptor.fields
        ]
    )


def _row(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if _is_repeated(field):
            found[field.name] = _repeated(field, getattr(message, field.name))
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _value(field, getattr(message, field.name))
    return found


def _repeated(field: Any, values: Any) -> list[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        return [{"key": key, "value": _value(of, each)} for key, each in sorted(values.items())]
    return [_value(field, each) for each in values]


def _value(field: Any, value: Any) -> Any:
    if field.type in _MESSAGES:
        if field.message_type.full_name == _TIMESTAMP:
            micros = value.seconds * 1_000_000 + value.nanos // 1000
            return _EPOCH + datetime.timedelta(microseconds=micros)
        return _row(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _is_repeated(field: Any) -> bool:
    is_repeated = getattr(field, "is_repeated", None)
    return bool(is_repeated if is_repeated is not None else field.label == 3)


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        if at >= len(data) or shift > 35:
            raise ValueError("the header of a registry is cut off")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
