"""StreamsGroupDescribe: API key 89, version 0.

KIP-1071.

The work is in `groups.streams.description`.
"""

from collections.abc import Coroutine
from typing import Any

from headrace.api.groups import answer_descriptions, check_streams_groups
from headrace.groups.streams.description import describe_streams_group
from headrace.server.broker import Broker
from headrace.server.request import Answer, Request
from headrace.wire.messages.streams_group_describe_response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from headrace.wire.schema import Message


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    check_streams_groups(broker)
    return answer_descriptions(
        broker, request, describe_streams_group, DescribedGroup, StreamsGroupDescribeResponse
    )
