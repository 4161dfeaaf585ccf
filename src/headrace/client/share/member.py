"""A share group member: the heartbeats it sends, and what responses mean.

Pure. The member chooses its id, once; epoch 0 joins and rejoins, -1 leaves.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

from headrace.client.errors import refusal
from headrace.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.surroundings import new_uuid
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1

_PUT_OUT: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Next(Enum):
    """When the next heartbeat is due."""

    AFTER_INTERVAL = auto()
    AT_ONCE = auto()
    AFTER_PAUSE = auto()
    AFTER_FINDING = auto()
    """The coordinator has moved."""


def new_member_id() -> str:
    """Return an id in Kafka's form: 22 characters of URL-safe base64, not starting with a dash."""
    while True:
        text = urlsafe_b64encode(new_uuid().bytes).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):  # it would look like an option to command-line tools
            return text


class Member:
    """What this member knows of its place in the group."""

    def __init__(self, group_id: str, topics: Iterable[str], rack: str | None) -> None:
        self.group_id = group_id
        self.member_id = new_member_id()
        self.epoch = JOINING_EPOCH
        self.interval_ms = 0
        """The heartbeat interval."""
        self.assignment: Mapping[TopicId, tuple[int, ...]] = {}
        self._topics = tuple(sorted(set(topics)))
        self._rack = rack
        self._is_subscription_sent = False

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    def subscribe(self, topics: Iterable[str]) -> None:
        """Want other topics; the next heartbeat says so."""
        self._topics = tuple(sorted(set(topics)))
        self._is_subscription_sent = False

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat, with the subscription only if the coordinator lacks it."""
        body = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == JOINING_EPOCH:
            body.rack_id = self._rack
        if self.epoch == JOINING_EPOCH or not self._is_subscription_sent:
            body.subscribed_topic_names = list(self._topics)
        return body

    def miss(self) -> None:
        """Repeat everything in the next heartbeat: this one got no response.

        The lost response may have carried our assignment, which the coordinator sends again only to
        a member that names its topics.
        """
        self._is_subscription_sent = False

    def leaving(self) -> ShareGroupHeartbeatRequest:
        """Return the last heartbeat, which leaves the group."""
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVING_EPOCH
        )

    def take(self, sent: ShareGroupHeartbeatRequest, answer: ShareGroupHeartbeatResponse) -> Next:
        """Apply a response; raise KafkaError if it ends the membership for good."""
        code = answer.error_code
        if code == ErrorCode.NONE:
            self._take_place(sent, answer)
            return Next.AFTER_INTERVAL
        self.miss()
        if code in _PUT_OUT:
            self.epoch = JOINING_EPOCH
            self.assignment = {}
            return Next.AT_ONCE
        if code in COORDINATOR_MOVED:
            return Next.AFTER_FINDING
        error = self._explained(refusal(code, answer.error_message, f"group {self.group_id!r}"))
        if error.is_retriable:
            return Next.AFTER_PAUSE
        raise error

    def _take_place(
        self, sent: ShareGroupHeartbeatRequest, answer: ShareGroupHeartbeatResponse
    ) -> None:
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if sent.subscribed_topic_names == list(self._topics):
            self._is_subscription_sent = True
        if answer.assignment is not None:
            self.assignment = {
                TopicId(row.topic_id): tuple(row.partitions)
                for row in answer.assignment.topic_partitions
            }

    def _explained(self, error: KafkaError) -> KafkaError:
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            return KafkaError(
                error.code,
                f"the cluster has no share groups: {error.message}; "
                "they need the feature share.version at level 1",
            )
        return error
