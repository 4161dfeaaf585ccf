"""Admin methods for groups: classic, consumer, streams and share."""

from collections.abc import Iterable, Mapping, Sequence

from headrace.client import group_members, groups
from headrace.client.administration.connected import Connected
from headrace.client.group_members import GroupDescription
from headrace.client.groups import CommittedOffset, ListedGroup
from headrace.client.outcomes import Outcomes, values_of
from headrace.client.share import offsets as share_offsets
from headrace.client.share.offsets import ShareStart
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError


class GroupMethods(Connected):
    """Groups, their members and their offsets."""

    async def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups of the cluster, sorted by name; of some states or types if named.

        Types are classic, consumer, share and streams.
        """
        return await groups.list_groups(self.cluster, states, types)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return a group of any type with its members; GROUP_ID_NOT_FOUND if there is none."""
        return await group_members.describe_group(self.cluster, group_id)

    async def describe_groups(self, group_ids: Sequence[str]) -> Outcomes[str, GroupDescription]:
        """Return groups of any type with their members."""
        outcomes: Outcomes[str, GroupDescription] = {}
        for group_id in group_ids:
            try:
                outcomes[group_id] = await self.describe_group(group_id)
            except KafkaError as error:
                outcomes[group_id] = error
        return outcomes

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with its offsets."""
        values_of(await self.delete_groups([group_id]))

    async def delete_groups(self, group_ids: Sequence[str]) -> Outcomes[str, None]:
        """Delete groups of any type with their offsets; one that has members is refused."""
        return await groups.delete_groups(self.cluster, group_ids)

    async def remove_members(
        self,
        group_id: str,
        *,
        member_ids: Iterable[str] = (),
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
    ) -> Outcomes[str, None]:
        """Remove members of the classic protocol from a group, by member id or by instance id.

        Returns an outcome for each id. A running member rejoins.
        """
        return await groups.remove_members(
            self.cluster, group_id, member_ids, instance_ids, reason=reason
        )

    async def remove_all_members(
        self, group_id: str, *, reason: str | None = None
    ) -> Outcomes[str, None]:
        """Remove all current members of a group; return an outcome for each member id."""
        described = await self.describe_group(group_id)
        member_ids = [member.member_id for member in described.members]
        return await self.remove_members(group_id, member_ids=member_ids, reason=reason)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets, sorted; of some partitions if named.

        With `require_stable`, wait for offsets of the named partitions that a transaction is about
        to commit: use it before continuing from them.
        """
        return await groups.fetch_offsets(
            self.cluster, group_id, partitions, require_stable=require_stable
        )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> Outcomes[TopicPartition, None]:
        """Set the offsets of a group without members. A group that does not exist is created."""
        return await groups.commit_offsets(self.cluster, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """Delete a group's committed offsets of partitions to which no member subscribes."""
        return await groups.delete_offsets(self.cluster, group_id, partitions)

    async def list_share_group_offsets(self, group_id: str) -> Outcomes[TopicPartition, ShareStart]:
        """Return a share group's start offset in every partition that it knows, sorted."""
        return await share_offsets.describe_share_offsets(self.cluster, group_id)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> Outcomes[TopicPartition, None]:
        """Set the start offsets of a share group without members; record states are lost."""
        return await share_offsets.alter_share_offsets(self.cluster, group_id, offsets)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Sequence[str]
    ) -> Outcomes[str, None]:
        """Delete the state of topics of a share group without members."""
        return await share_offsets.delete_share_offsets(self.cluster, group_id, topics)
