"""ShareFetch and ShareAcknowledge, from what a link has to say."""

from collections.abc import Mapping, Sequence

from headrace.client.share.acknowledgements import AcknowledgedRange
from headrace.client.share.session import FetchPlan, SharedPartition
from headrace.client.share.terms import FetchTerms
from headrace.ids import TopicId
from headrace.wire.messages import share_acknowledge_request as acknowledge
from headrace.wire.messages import share_fetch_request as fetch

Batches = Mapping[SharedPartition, Sequence[AcknowledgedRange]]


def fetch_request(
    terms: FetchTerms, plan: FetchPlan, batches: Batches, *, records_max: int, max_wait_ms: int
) -> fetch.ShareFetchRequest:
    """Ask for records, and acknowledge on the way."""
    topics: dict[TopicId, list[fetch.FetchPartition]] = {}
    for shared in sorted({*plan.added, *batches}):
        rows = [
            fetch.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=types
            )
            for first, last, types in batches.get(shared, ())
        ]
        topics.setdefault(shared.topic_id, []).append(
            fetch.FetchPartition(
                partition_index=shared.partition_index, acknowledgement_batches=rows
            )
        )
    forgotten: dict[TopicId, list[int]] = {}
    for shared in sorted(plan.forgotten):
        forgotten.setdefault(shared.topic_id, []).append(shared.partition_index)
    limits = terms.limits
    return fetch.ShareFetchRequest(
        group_id=terms.group_id,
        member_id=terms.member_id,
        share_session_epoch=plan.epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        max_records=records_max,
        batch_size=records_max,
        share_acquire_mode=terms.acquire_mode,
        topics=[
            fetch.FetchTopic(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics.items()
        ],
        forgotten_topics_data=[
            fetch.ForgottenTopic(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in forgotten.items()
        ],
    )


def acknowledge_request(
    terms: FetchTerms, epoch: int, batches: Batches, *, is_renewing: bool
) -> acknowledge.ShareAcknowledgeRequest:
    """Return a request that only acknowledges; the final epoch ends the session."""
    topics: dict[TopicId, list[acknowledge.AcknowledgePartition]] = {}
    for shared, ranges in sorted(batches.items()):
        rows = [
            acknowledge.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=types
            )
            for first, last, types in ranges
        ]
        topics.setdefault(shared.topic_id, []).append(
            acknowledge.AcknowledgePartition(
                partition_index=shared.partition_index, acknowledgement_batches=rows
            )
        )
    return acknowledge.ShareAcknowledgeRequest(
        group_id=terms.group_id,
        member_id=terms.member_id,
        share_session_epoch=epoch,
        is_renew_ack=is_renewing,
        topics=[
            acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics.items()
        ],
    )
