"""A classic group as DescribeGroups shows it."""

from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember


def describe(group: ClassicGroup) -> DescribedGroup:
    """Return the group's row in DescribeGroups; metadata only while it is stable, as in Kafka."""
    name = group.protocol_name if group.state is ClassicState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=name or "",
        members=[
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=b"" if name is None else each.metadata(name),
                member_assignment=each.assignment,
            )
            for each in group.members.values()
        ],
    )
