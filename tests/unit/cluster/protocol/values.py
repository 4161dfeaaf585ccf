"""Values of the protocol's types: from the JSON of the crate that defined it, or any at all."""

import re
from functools import cache
from typing import Any

from hypothesis import strategies as st

from headrace.cluster.protocol.nodes import SocketAddress, socket_address
from headrace.cluster.protocol.postcard.plan import (
    Boolean,
    Choice,
    Data,
    Mapping,
    Optional,
    Plan,
    Record,
    Sequence,
    Text,
    Union,
    plan_of,
)
from headrace.cluster.protocol.postcard.schema import Integer, Octets, Real

ADDRESS = plan_of(SocketAddress)
LENGTHS_MAX = 4


def from_serde(plan: Plan, value: Any) -> Any:  # noqa: PLR0911  a table
    """Return the value that serde's JSON form stands for."""
    if plan == ADDRESS:
        host, _, port = value.rpartition(":")
        return socket_address(host.strip("[]"), int(port))
    match plan:
        case Integer():
            return int(value)  # a key of a map is text in JSON
        case Data():
            return bytes(value)
        case Optional(item):
            return None if value is None else from_serde(item, value)
        case Sequence(item):
            return tuple(from_serde(item, each) for each in value)
        case Mapping(key, held):
            return {from_serde(key, k): from_serde(held, v) for k, v in value.items()}
        case Choice(form):
            return form[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).upper()]
        case Record(form, fields):
            assert set(value) == {name for name, _ in fields}
            return form(**{name: from_serde(field, value[name]) for name, field in fields})
        case Union(variants):
            ((name, fields),) = value.items() if isinstance(value, dict) else ((value, {}),)
            (variant,) = (each for _, each in variants if each.type.__name__ == name)
            return from_serde(variant, fields)
        case _:
            return value


@cache  # a strategy takes long to make
def any_of(plan: Plan) -> st.SearchStrategy[Any]:  # noqa: PLR0911  a table
    """Return a strategy for any value that has a wire form."""
    match plan:
        case Integer(bits):
            edges = [0, 127, 128, 16383, 16384, plan.low, plan.high]
            fitting = [each for each in edges if plan.low <= each <= plan.high]
            return st.sampled_from(fitting) | st.integers(plan.low, plan.high)
        case Real(bits):
            return st.floats(width=bits, allow_nan=False)  # type: ignore[arg-type]
        case Octets(count):
            return st.binary(min_size=count, max_size=count)
        case Boolean():
            return st.booleans()
        case Text():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
        case Data():
            return st.binary(max_size=300)
        case Choice(form):
            return st.sampled_from(list(form))
        case Optional(item):
            return st.none() | any_of(item)
        case Sequence(item):
            return st.lists(any_of(item), max_size=LENGTHS_MAX).map(tuple)
        case Mapping(key, value):
            return st.dictionaries(any_of(key), any_of(value), max_size=LENGTHS_MAX)
        case Record(form, fields):
            return st.builds(form, **{name: any_of(field) for name, field in fields})
        case Union(variants):
            return st.one_of([any_of(variant) for _, variant in variants])
