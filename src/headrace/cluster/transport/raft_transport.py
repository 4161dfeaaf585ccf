"""Raft's messages over the links: `headrace.raft.ports.Transport`, and the way in.

Pieces of a snapshot go over the bulk connection, and what keeps a leader in office overtakes what
waits: a heartbeat is never behind a snapshot, and behind no more than one batch of entries.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.cluster.transport.calls import RAFT_KIND, InvalidPayload
from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.message_bounds import ENTRIES_MAX, bounds_problem
from headrace.raft.errors import InvalidMessage
from headrace.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    InstallSnapshot,
    Message,
    decode_message,
    encode_message,
)

_IN_LINE: Final = (Append, AppendAccepted, AppendRejected)
"""What is sent in order: entries that overtake each other are refused, and sent again."""


class RaftTransport:
    """Sends for one node; what comes goes to `receive(sender, message)`."""

    def __init__(self, links: Links, receive: Callable[[Identity, Message], None]) -> None:
        self._links = links
        self._receive = receive
        links.on_message(RAFT_KIND, self._on_message)

    def send(self, messages: list[Message]) -> None:
        """Send what can be sent, at once and without waiting; what is lost is sent again."""
        for message in messages:
            is_bulk = isinstance(message, InstallSnapshot)
            self._links.send(
                message.to,
                RAFT_KIND,
                [encode_message(_bounded(message))],
                purpose=Purpose.BULK if is_bulk else Purpose.CONTROL,
                is_urgent=not is_bulk and not isinstance(message, _IN_LINE),
            )

    def _on_message(self, sender: Identity, payload: memoryview) -> None:
        if problem := bounds_problem(payload):
            raise InvalidPayload(problem)
        try:
            message = decode_message(payload)
        except InvalidMessage as error:
            raise InvalidPayload(str(error)) from None
        if message.sender != sender.node or message.to != self._links.identity.node:
            raise InvalidPayload(
                f"node {sender.node} sends a message from {message.sender} to {message.to}"
            )
        self._receive(sender, message)


def _bounded(message: Message) -> Message:
    """Return a message that a peer takes: fewer entries are one, too, and the rest follows."""
    if isinstance(message, Append) and len(message.entries) > ENTRIES_MAX:
        return msgspec.structs.replace(message, entries=message.entries[:ENTRIES_MAX])
    return message
