"""ConsumerGroupDescribe: API key 69, versions 0 and 1.

KIP-848; KIP-1099 (which protocol a member speaks, from 1).

The work is in `groups.consumer.description`.
"""

from collections.abc import Coroutine
from typing import Any

from headrace.api.groups import answer_descriptions
from headrace.errors import ErrorCode
from headrace.groups.consumer.description import describe_consumer_group
from headrace.server.broker import Broker
from headrace.server.request import Answer, Request
from headrace.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headrace.wire.schema import Message


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    return answer_descriptions(
        broker, request, describe_consumer_group, _refused, ConsumerGroupDescribeResponse
    )


def _refused(code: int, message: str, group_id: str) -> DescribedGroup:
    # Kafka does not say of these groups what is wrong with having no name.
    is_nameless = code == ErrorCode.INVALID_GROUP_ID
    return DescribedGroup(code, None if is_nameless else message, group_id)
