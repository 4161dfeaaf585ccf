"""Send replies to callers: each by itself, whatever happens to the others."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from headrace.coordinator.machine import OnError, Told, told
from headrace.errors import ErrorCode, KafkaError

REPLIES_AT_ONCE: Final = 100
"""How many callers are told before other tasks get a turn, when all of them fail."""

logger = logging.getLogger(__name__)


def tell(answered: Told) -> None:
    """Send a reply. One that cannot be sent, or cannot even be encoded, fails alone.

    Its caller gets an error; the callers after it are not affected.
    """
    reply, answer = answered
    try:
        reply(answer)
    except Exception as error:
        logger.exception("a coordinator's response cannot be sent")
        failed = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response cannot be sent: {error}")
        try:
            reply(failed)
        except Exception:
            logger.exception("the error response cannot be sent either")


def fail_all(replies: Sequence[OnError], error: KafkaError) -> None:
    """Fail all replies: the first at once, the rest slice by slice."""
    for reply in replies[:REPLIES_AT_ONCE]:
        tell(told(reply, error))
    if rest := replies[REPLIES_AT_ONCE:]:
        asyncio.get_running_loop().call_soon(fail_all, rest, error)
