"""Who votes on the metadata log, and who leaves the cluster (KIP-853, KIP-631)."""

from collections.abc import Mapping

from headrace.client.addresses import Address
from headrace.client.cluster import CONTROLLER, Cluster
from headrace.client.errors import raise_for
from headrace.client.nodes import describe_cluster, describe_quorum
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import parse_topic_id
from headrace.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from headrace.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from headrace.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from headrace.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from headrace.wire.messages.unregister_broker_response import UnregisterBrokerResponse

Changed = AddRaftVoterResponse | RemoveRaftVoterResponse | UnregisterBrokerResponse


async def add_raft_voter(
    cluster: Cluster,
    node_id: int,
    directory_id: str | None,
    listeners: Mapping[str, Address],
) -> None:
    """Make a node a voter; of an observer the directory need not be given."""
    body = AddRaftVoterRequest(
        cluster_id=(await describe_cluster(cluster)).cluster_id,
        timeout_ms=cluster.settings.request_timeout_ms,
        voter_id=node_id,
        voter_directory_id=await _directory(cluster, node_id, directory_id, is_voter=False),
        listeners=[
            Listener(name=name, host=address.host, port=address.port)
            for name, address in listeners.items()
        ],
    )
    answer = await cluster.ask(
        body,
        AddRaftVoterResponse,
        node_id=CONTROLLER,
        code_of=_if_elsewhere,
        patience_ms=body.timeout_ms,
    )
    raise_for(answer.error_code, answer.error_message, f"node {node_id}")


async def remove_raft_voter(cluster: Cluster, node_id: int, directory_id: str | None) -> None:
    """Take a node's vote."""
    body = RemoveRaftVoterRequest(
        cluster_id=(await describe_cluster(cluster)).cluster_id,
        voter_id=node_id,
        voter_directory_id=await _directory(cluster, node_id, directory_id, is_voter=True),
    )
    answer = await cluster.ask(
        body, RemoveRaftVoterResponse, node_id=CONTROLLER, code_of=_if_elsewhere
    )
    raise_for(answer.error_code, answer.error_message, f"node {node_id}")


async def unregister_broker(cluster: Cluster, node_id: int) -> None:
    """Unregister a node that is down."""
    body = UnregisterBrokerRequest(broker_id=node_id)
    answer = await cluster.ask(
        body, UnregisterBrokerResponse, node_id=CONTROLLER, code_of=_if_elsewhere
    )
    raise_for(answer.error_code, answer.error_message, f"node {node_id}")


async def _directory(
    cluster: Cluster, node_id: int, directory_id: str | None, *, is_voter: bool
) -> bytes:
    """Return the bytes of a directory id, of the one that the node has if none is given."""
    if directory_id is not None:
        return parse_topic_id(directory_id)
    quorum = await describe_quorum(cluster)
    members = quorum.voters if is_voter else (*quorum.observers, *quorum.voters)
    for member in members:
        if member.node_id == node_id:
            return parse_topic_id(member.directory_id)
    what = "voter" if is_voter else "member of the quorum"
    raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"node {node_id} is no {what}")


def _if_elsewhere(answer: Changed) -> int:
    """Return the code if another node must be asked; anything else is not asked twice."""
    return answer.error_code if answer.error_code == ErrorCode.NOT_CONTROLLER else 0
