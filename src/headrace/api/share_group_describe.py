"""ShareGroupDescribe: API key 77, version 1.

KIP-932.

The work is in `groups.share.description`.
"""

from collections.abc import Coroutine
from typing import Any

from headrace.api.groups import answer_descriptions, check_share_groups
from headrace.groups.share.description import describe_share_group
from headrace.server.broker import Broker
from headrace.server.request import Answer, Request
from headrace.wire.messages.share_group_describe_response import (
    DescribedGroup,
    ShareGroupDescribeResponse,
)
from headrace.wire.schema import Message


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    check_share_groups(broker)
    return answer_descriptions(
        broker, request, describe_share_group, DescribedGroup, ShareGroupDescribeResponse
    )
