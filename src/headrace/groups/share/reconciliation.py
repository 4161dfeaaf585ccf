"""How a member of a share group reaches its target: at once, with its next heartbeat (KIP-932).

No member has to revoke first, because partitions are shared.
"""

from dataclasses import replace

from headrace.groups.assignors import Assignment
from headrace.groups.share.members import ShareMember
from headrace.groups.share.target import Target
from headrace.metadata.image import Image


def advance(member: ShareMember, target: Target, image: Image) -> ShareMember:
    """Return the member with what the target has for it.

    Nobody waits, as nobody has to give up.
    """
    given = _still_wanted(target.assignments.get(member.member_id, {}), member, image)
    if member.epoch == target.epoch and member.assigned == given:
        return member
    return replace(member, epoch=target.epoch, previous_epoch=member.epoch, assigned=given)


def _still_wanted(target: Assignment, member: ShareMember, image: Image) -> Assignment:
    """Drop topics that the member has unsubscribed from since the target was computed."""
    topics = {topic_id: image.topic_by_id(topic_id) for topic_id in target}
    return {
        topic_id: target[topic_id]
        for topic_id, topic in topics.items()
        if topic is None or topic.name in member.topic_names
    }
