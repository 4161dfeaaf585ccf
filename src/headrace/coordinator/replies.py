"""Telling callers what became of their operations: each by itself, whatever happens to others."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from headrace.coordinator.machine import OnError, Told, told
from headrace.errors import ErrorCode, KafkaError

REPLIES_AT_ONCE: Final = 100
"""How many callers are told before others on the loop get a turn, when everybody is."""

logger = logging.getLogger(__name__)


def tell(answered: Told) -> None:
    """Pass an answer on. One that cannot be sent, or cannot even be encoded, is that one's failure.

    Its caller is told so; the callers behind it must not suffer for it.
    """
    reply, answer = answered
    try:
        reply(answer)
    except Exception as error:
        logger.exception("an answer of a coordinator cannot be sent")
        failed = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response cannot be sent: {error}")
        try:
            reply(failed)
        except Exception:
            logger.exception("nor can its failure")


def fail_all(replies: Sequence[OnError], error: KafkaError) -> None:
    """Tell everybody that nothing comes: the first at once, the rest slice by slice."""
    for reply in replies[:REPLIES_AT_ONCE]:
        tell(told(reply, error))
    if rest := replies[REPLIES_AT_ONCE:]:
        asyncio.get_running_loop().call_soon(fail_all, rest, error)
