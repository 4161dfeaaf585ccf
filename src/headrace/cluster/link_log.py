"""What a node logs of its connections to others: each change once, a problem until it changes."""

import logging

from headrace.cluster.transport import events
from headrace.cluster.transport.hello import Purpose
from headrace.cluster.transport.refusals import Reason
from headrace.ids import BrokerId

logger = logging.getLogger(__name__)


class LinkLog:
    """The log lines of one node's links."""

    def __init__(self) -> None:
        self._problems: dict[BrokerId | None, str] = {}
        """What was last logged of peers that cannot be reached; None is a stranger."""

    def note(self, event: events.Event) -> None:
        match event:
            case (
                events.Connected(purpose=Purpose.ONE_CALL)
                | events.Disconnected(purpose=Purpose.ONE_CALL)
            ):
                pass
            case events.Connected(peer, purpose, True):
                self._problems.pop(peer.node, None)
                logger.info("connected to node %d (%s)", peer.node, purpose.name.lower())
            case events.Disconnected(peer, purpose, True, reason):
                logger.info("lost node %d (%s): %s", peer.node, purpose.name.lower(), reason)
            case events.ConnectFailed(node, _, reason):
                self._tell(node, logging.INFO, reason)
            case events.ConnectionRefused(node, address, refused) if (
                refused.reason is not Reason.SELF_CONNECTION
            ):
                host = address.rpartition(":")[0]  # the port is another one each time
                self._tell(node, logging.WARNING, f"{host}: {refused}")
            case _:
                pass

    def _tell(self, node: BrokerId | None, level: int, reason: str) -> None:
        if self._problems.get(node) != reason:
            self._problems[node] = reason
            who = "a connection is refused" if node is None else f"node {node}"
            logger.log(level, "%s: %s", who, reason)
