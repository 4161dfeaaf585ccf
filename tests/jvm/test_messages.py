"""Our bytes are those of Apache Kafka's own message classes, for every message and version."""

import base64
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import RETRIABLE, ErrorCode
from headrace.ids import TopicId, topic_id_text
from headrace.wire import WireError, decode, encode, message_type
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.plan import FieldPlan, StructPlan, plan_message
from tests.message_values import MESSAGE_NAMES, Rolled, make_message, versions_of
from tools import schemas
from tools.jvm import harness
from tools.jvm.oracles import MessageOracle, OracleError, error_codes

VALUES_PER_VERSION = 4
JSON_LIMIT = "Can't read version"
"""Kafka's JSON has no form for a struct in a version that lacks it, its messages do."""


@pytest.fixture(scope="module")
def java_names() -> dict[str, str]:
    """Kafka's name of each attribute."""
    names: dict[str, str] = {}

    def collect(fields: list[dict[str, Any]]) -> None:
        for field in fields:
            name = field["name"]
            java_name = name[0].lower() + name[1:]
            assert names.setdefault(schemas.attribute_name(name), java_name) == java_name
            collect(field.get("fields", []))

    for schema in schemas.read_schemas(harness.jars()):
        collect(schema["fields"])
        for struct in schema.get("commonStructs", []):
            collect(struct["fields"])
    return names


def to_json(value: Any, plan: StructPlan, names: dict[str, str]) -> dict[str, Any]:
    """Write a struct in the form that MessageOracle.java reads."""
    fields = (*plan.present, *plan.tagged)
    return {names[f.name]: _field_json(getattr(value, f.name), f, names) for f in fields}


def _field_json(value: Any, plan: FieldPlan, names: dict[str, str]) -> Any:
    if value is None:
        return None
    if plan.is_array:
        return [_field_json(element, plan.element(), names) for element in value]
    if plan.struct is not None:
        return to_json(value, plan.struct, names)
    if plan.kind == "uuid":
        return topic_id_text(TopicId(value))
    if plan.kind in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value


@pytest.mark.parametrize("name", MESSAGE_NAMES)
def test_a_message_has_the_bytes_that_kafka_writes(
    name: str, messages: MessageOracle, java_names: dict[str, str]
) -> None:
    message, choices = message_type(name), Rolled(Random(name))
    for version in versions_of(name):
        plan = plan_message(message, version)
        for _ in range(VALUES_PER_VERSION):
            value = make_message(message, version, choices)
            expected = messages.encode(name, version, to_json(value, plan, java_names))
            assert encode(value, version) == expected
            assert decode(message, expected, version) == value


@pytest.mark.parametrize("name", MESSAGE_NAMES)
def test_defaults_are_those_of_kafka(name: str, messages: MessageOracle) -> None:
    message = message_type(name)
    for version in versions_of(name):
        assert encode(message(), version) == messages.default(name, version)


def test_kafka_refuses_what_we_refuse_in_versions_without_a_field(
    messages: MessageOracle, java_names: dict[str, str]
) -> None:
    """A value that one version has is written as another, by both; both take it or neither does."""
    random = Random(11)
    refused = written = 0
    for name in MESSAGE_NAMES:
        message, versions = message_type(name), versions_of(name)
        if len(versions) == 1:
            continue
        for _ in range(20):
            made_for, written_as = random.choice(versions), random.choice(versions)
            value = make_message(message, made_for, Rolled(random))
            plan = _merge(plan_message(message, made_for), plan_message(message, written_as))
            whole = to_json(value, plan, java_names)
            try:
                expected = messages.encode(name, written_as, whole)
            except OracleError as refusal:
                if JSON_LIMIT in refusal.text:
                    continue
                refused += 1
                with pytest.raises(WireError):
                    encode(value, written_as)
            else:
                written += 1
                assert encode(value, written_as) == expected
    assert refused > 100
    assert written > 100


def _merge(left: StructPlan, right: StructPlan) -> StructPlan:
    """Put the fields of two versions in one plan, as the JSON of both must be there."""
    fields = {field.name: field for field in (*left.present, *left.tagged)}
    for field in (*right.present, *right.tagged):
        other = fields.get(field.name, field)
        if other.struct is not None and field.struct is not None:
            fields[field.name] = replace(field, struct=_merge(other.struct, field.struct))
        else:
            fields[field.name] = field
    return replace(left, present=tuple(fields.values()), tagged=())


def test_unknown_tagged_fields_are_written_as_kafka_writes_them(messages: MessageOracle) -> None:
    tags = {40: b"forty", 5: b"", 1000: b"x" * 200}
    encoded = encode(FetchRequest(cluster_id="c", unknown_tags=tags), 15)
    assert messages.recode("FetchRequest", 15, encoded) == encoded


def test_the_definitions_are_those_of_the_jars() -> None:
    done = subprocess.run(
        [sys.executable, schemas.__file__, str(harness.jars()), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "246 files, none differs\n")


def test_error_codes_are_those_of_kafka() -> None:
    theirs = error_codes()
    assert {(error.code, error.name) for error in theirs} == {(c.value, c.name) for c in ErrorCode}
    assert {error.name for error in theirs if error.is_retriable} == {c.name for c in RETRIABLE}
