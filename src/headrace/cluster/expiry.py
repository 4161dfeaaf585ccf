"""What in the image has ended and can be dropped: leases, drains and tokens.

The controller looks now and then, and proposes `Expire` while there is anything: the entry names
the time, so every node drops the same.
"""

from headrace.metadata.descriptors import Hlc
from headrace.metadata.image import Image
from headrace.metadata.token_states import KEPT_AFTER_EXPIRY_MS


def is_anything_over(image: Image, now_ms: int) -> bool:
    """Return whether `Expire` with this time would drop anything but delegation tokens."""
    state, now = image.state, Hlc.of_ms(now_ms)
    return (
        any(
            token.expires_at_ms + KEPT_AFTER_EXPIRY_MS <= now_ms
            for token in state.join_tokens.values()
        )
        or any(drain.expires_at <= now for drain in state.drains.values())
        or any(
            lease.expires_at <= now for leases in state.leases.values() for lease in leases.values()
        )
    )


def is_any_token_over(image: Image, now_ms: int) -> bool:
    """Return whether `Expire` with this time would drop a delegation token."""
    return any(token.expiry_ms <= now_ms for token in image.state.delegation_tokens.values())
