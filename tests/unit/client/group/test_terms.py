"""Settings of a member that cannot be."""

from typing import Any

import pytest

from headrace.client import Consumer


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"group": ""}, "must not be empty"),
        ({"group": "g", "protocol": "modern"}, "modern"),
        ({"group": "g", "assignors": ["best"]}, "range, roundrobin, cooperative-sticky"),
        ({"group": "g", "assignors": []}, "name one or more"),
        ({"group": "g", "instance_id": ""}, "dynamic member"),
        ({"group": "g", "max_poll_interval_ms": 0}, "max_poll_interval_ms is 0"),
        ({"group": "g", "heartbeat_interval_ms": 50_000}, "less than session_timeout_ms"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        Consumer("127.0.0.1:1", **options)
