"""Which topics the members of a group want, where they speak the consumers' own embedded format.

The metadata of a protocol is the clients' matter, and what they put there need not be in any form.
Only whether offsets of a topic may be given up hangs on it, so that what cannot be read counts as
a wish for everything.
"""

from collections.abc import Iterable
from typing import Final

from headrace.wire import WireError, decode_from
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NEWEST_VERSION: Final = 3
_VERSION_BYTES: Final = 2


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Give all topics that members are subscribed to; None if one of them cannot be read."""
    topics: set[str] = set()
    for metadata in subscriptions:
        subscription = read_subscription(metadata)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Read what a consumer says of itself; None if it is nothing of the kind.

    A version newer than the newest known is read as that one: later ones only add at the end.
    """
    if len(metadata) < _VERSION_BYTES:
        return None
    version = int.from_bytes(metadata[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        return None
    try:
        subscription, _ = decode_from(
            ConsumerProtocolSubscription,
            memoryview(metadata),
            min(version, NEWEST_VERSION),
            _VERSION_BYTES,
        )
    except WireError:
        return None
    return subscription
