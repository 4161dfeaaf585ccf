"""AddRaftVoter: API key 80, versions 0 and 1.

KIP-853, KIP-1186 (a response before the change is committed, from 1). Any node takes it. The new
voter must have joined the cluster with the directory that is named, and is made one when it has
caught up; until then the request waits for up to its timeout, where Kafka gives up at once. A
voter listens on its node port: a listener named CONTROLLER must be just that, and none at all will
do. A node of a cluster with few voters is made one without being asked for, see `Controller`.

The work is in `cluster.quorum_members`.
"""

from collections.abc import Iterable

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.server.broker import Broker
from headrace.server.change_texts import ChangeText
from headrace.server.proposals import told
from headrace.server.reach import CONTROLLER_LISTENER, check_cluster_id, node_address
from headrace.server.request import Request
from headrace.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from headrace.wire.messages.add_raft_voter_response import AddRaftVoterResponse


async def handle(broker: Broker, request: Request) -> AddRaftVoterResponse:
    body: AddRaftVoterRequest = request.body
    node = BrokerId(body.voter_id)
    try:
        check_cluster_id(broker.image, body.cluster_id)
        if node < 0 or not any(body.voter_directory_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a voter is an id of 0 or more and a directory id"
            )
        _check_listeners(broker, node, body.listeners)
        with told(broker, request, ChangeText("AddVoter", "node", str(node))):
            await broker.members.add(
                node,
                body.voter_directory_id,
                max(body.timeout_ms, 0),
                is_awaited=body.ack_when_committed,
            )
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    return AddRaftVoterResponse(error_message=None)


def _check_listeners(broker: Broker, node: BrokerId, listeners: Iterable[Listener]) -> None:
    """Refuse an address that is not the one where other nodes reach this one."""
    given = {each.name: (each.host, each.port) for each in listeners}
    if not given:
        return
    if CONTROLLER_LISTENER not in given:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the listeners {', '.join(given)}: one must be {CONTROLLER_LISTENER}",
        )
    if node in broker.quorum.driver.state.membership.voters:
        return  # a duplicate, wherever it is
    known = node_address(broker.image, node)
    if known is not None and given[CONTROLLER_LISTENER] != known:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"node {node} has joined with the address {known[0]}:{known[1]}, not with "
            "{}:{}: headrace.node.advertised on that node changes it".format(
                *given[CONTROLLER_LISTENER]
            ),
        )
