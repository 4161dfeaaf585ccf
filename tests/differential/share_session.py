"""A member's share session: its requests in few words, and the epochs that they have."""

from typing import Any, Final

from headrace.wire.messages import share_acknowledge_request as acknowledging
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_configs_response import DescribeConfigsResponse
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
)
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from tests.differential.conversation import Conversation
from tests.differential.requests import Topic
from tests.differential.share_state_requests import Share, share_states

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL: Final = -1
GROUP_RESOURCE: Final = 32
WAIT_MS: Final = 100
"""How long a fetch waits that finds nothing."""
LOAD_WAIT_MS: Final = 5000

Ack = tuple[int, int, list[int]]
"""The first and the last offset, and a type for all or one for each."""
Acks = dict[int, list[Ack]]


class Member:
    """A member with a session over one topic; requests follow each other's epochs."""

    def __init__(self, talk: Conversation, group: str, topic: Topic, member: str = "m") -> None:
        self.talk = talk
        self.group = group
        self.topic = topic
        self.member = member
        self.epoch = 0

    def fetch(self, name: str, *partitions: int, **options: Any) -> ShareFetchResponse:
        """Fetch and keep the answer."""
        version = options.pop("version", None)
        request = self.fetch_request(*partitions, **options)
        answer = self.talk.ask(name, request, version)
        assert isinstance(answer, ShareFetchResponse)
        self._advance(request.share_session_epoch, answer.error_code)
        return answer

    def fetch_quietly(self, *partitions: int, **options: Any) -> ShareFetchResponse:
        request = self.fetch_request(*partitions, **options)
        answer = self.talk.quietly(request, ShareFetchResponse)
        self._advance(request.share_session_epoch, answer.error_code)
        return answer

    def fetch_until_records(self, name: str, *partitions: int) -> None:
        """Fetch until there are records; keep the answer with them.

        Kafka's leaders notice some things with a fetch, and act on them with the next one.
        """
        answers: list[ShareFetchResponse] = []

        def has_records() -> bool:
            answers.append(self.fetch_quietly(*partitions))
            rows = [row for topic in answers[-1].responses for row in topic.partitions]
            return any(row.acquired_records for row in rows)

        self.talk.until_so(has_records)
        self.talk.keep(name, self.fetch_request(), 2, self.talk.plain(answers[-1]))

    def open(self, *partitions: int) -> None:
        """Begin the session, and wait until its partitions, which are empty, are loaded."""

        def are_loaded() -> bool:
            self.epoch = 0
            answer = self.fetch_quietly(*partitions)
            rows = [row for topic in answer.responses for row in topic.partitions]
            return len(rows) == len(partitions)

        self.talk.until_so(are_loaded)

    def acknowledge(self, name: str, acks: Acks, **options: Any) -> None:
        """Acknowledge and keep the answer."""
        version = options.pop("version", None)
        request = self.acknowledge_request(acks, **options)
        answer = self.talk.ask(name, request, version)
        assert isinstance(answer, ShareAcknowledgeResponse)
        self._advance(request.share_session_epoch, answer.error_code)

    def fetch_request(
        self,
        *partitions: int,
        acks: Acks | None = None,
        forgotten: tuple[int, ...] = (),
        **fields: Any,
    ) -> ShareFetchRequest:
        rows = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(*each) for each in (acks or {}).get(index, ())
                ],
            )
            for index in dict.fromkeys((*partitions, *(acks or {})))
        ]
        given: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "max_wait_ms": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [FetchTopic(topic_id=self.topic.id, partitions=rows)] if rows else [],
        }
        if forgotten:
            row = ForgottenTopic(topic_id=self.topic.id, partitions=list(forgotten))
            given["forgotten_topics_data"] = [row]
        return ShareFetchRequest(**(given | fields))

    def acknowledge_request(
        self, acks: Acks, **fields: Any
    ) -> acknowledging.ShareAcknowledgeRequest:
        rows = [
            acknowledging.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    acknowledging.AcknowledgementBatch(*each) for each in batches
                ],
            )
            for index, batches in acks.items()
        ]
        topic = acknowledging.AcknowledgeTopic(topic_id=self.topic.id, partitions=rows)
        given: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "topics": [topic] if rows else [],
        }
        return acknowledging.ShareAcknowledgeRequest(**(given | fields))

    def _advance(self, epoch: int, error_code: int) -> None:
        if epoch == self.epoch and error_code == 0:
            self.epoch += 1


def begin_share(talk: Conversation, group: str, topic: Topic, *partitions: int) -> None:
    """Begin share partitions at offset 0, as a group's coordinator does, without the group."""
    share = Share(group, topic.id)
    share_states(talk, share)
    for index in partitions or (0,):
        answer = talk.quietly(share.initialize(1, 0, index), InitializeShareGroupStateResponse)
        assert answer.results[0].partitions[0].error_code == 0, answer


def set_group_config(talk: Conversation, group: str, name: str, value: str) -> None:
    """Set a config of a group and wait until the broker shows it: Kafka applies it later."""
    row = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    answer = talk.quietly(
        IncrementalAlterConfigsRequest(resources=[row]), IncrementalAlterConfigsResponse
    )
    assert answer.responses[0].error_code == 0, answer
    described = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=[name]
    )
    talk.until(
        DescribeConfigsRequest(resources=[described]),
        DescribeConfigsResponse,
        lambda found: [row.value for row in found.results[0].configs] == [value],
    )
