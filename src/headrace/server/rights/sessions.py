"""What fetches need: their sessions remember partitions, which are checked at every fetch.

The handlers of fetches ask `DeniedTopics`, kept with the request, for each partition of a session,
and those that waited ask again: rights may have been taken away in the meantime.
"""

from collections.abc import Callable

from headrace.errors import KafkaError
from headrace.loop.slices import Slices
from headrace.security.acls import Operation, Resource
from headrace.server.request import Request
from headrace.server.rights.checks import Check, Outcome, take_out


def fetch(check: Check, request: Request) -> "Outcome | Slices[Outcome]":
    """READ on each topic, which the handler checks; CLUSTER_ACTION for whoever is a replica."""
    body = request.body
    if body.replica_id < 0 and body.replica_state.replica_id < 0:
        request.denied = DeniedTopics(check)
        return None
    if check.may_cluster(Operation.CLUSTER_ACTION):
        request.denied = DeniedTopics(
            check, lambda: check.require_cluster(Operation.CLUSTER_ACTION)
        )
        return None
    return _refuse(check, request)


def _refuse(check: Check, request: Request) -> "Slices[Outcome]":
    refused = yield from take_out(check, request, ("topics", "responses"), lambda row: False)
    if refused is None:  # it names no topics, those of its session are meant
        raise check.refusal(Resource.TOPIC)
    return refused


def share(check: Check, request: Request) -> None:
    """READ on the group, and on each topic, which the handler checks.

    So a session goes on, or ends, as the request says, whatever may be read.
    """
    group_id = request.body.group_id

    def require() -> None:
        check.require_group(Operation.READ, group_id)

    require()
    request.denied = DeniedTopics(check, require)


class DeniedTopics:
    """The topics that the client of a fetch may not read."""

    __slots__ = ("_by_id", "_check", "_generation", "_require")

    def __init__(self, check: Check, require: Callable[[], None] = lambda: None) -> None:
        """`require` raises KafkaError if the client may not send the request at all."""
        self._check = check
        self._require = require
        self._generation = check.generation
        self._by_id: dict[bytes, bool] = {}

    def has(self, name: str, topic_id: bytes) -> bool | None:
        """Return whether a topic may not be read; None if there is no topic with that id.

        Nothing is remembered of an id that is unknown: its topic may come, and have no rights.
        """
        known = self._by_id.get(topic_id) if not name else None
        if known is not None:
            return known
        found = self._check.topic_name(name, topic_id)
        if found is None:
            return None
        is_denied = not self._check.may_topic(Operation.READ, found)
        if not name:
            self._by_id[topic_id] = is_denied
        return is_denied

    def has_changed(self) -> bool:
        """Return, once, whether ACLs changed since the last look.

        Raise KafkaError if by the new ones the client may not send the request at all.
        """
        generation = self._check.generation
        if generation == self._generation:
            return False
        self._generation = generation
        self._by_id.clear()
        self._require()
        return True

    def refusal(self) -> KafkaError:
        return self._check.refusal(Resource.TOPIC)
