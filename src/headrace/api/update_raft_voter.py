"""UpdateRaftVoter: API key 82, version 0.

KIP-853: what a voter of Kafka says of itself when it starts. A node of Headrace says that to the
controller as it registers, so nothing is changed here: what the cluster knows already is confirmed,
anything else is refused with INVALID_REQUEST, and logged, as the response has no message.
"""

import logging

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.features import KRAFT_VERSION
from headrace.server.broker import Broker
from headrace.server.reach import CONTROLLER_LISTENER, check_cluster_id, node_address
from headrace.server.request import Request
from headrace.wire.messages.update_raft_voter_request import UpdateRaftVoterRequest
from headrace.wire.messages.update_raft_voter_response import (
    CurrentLeader,
    UpdateRaftVoterResponse,
)

logger = logging.getLogger(__name__)


def handle(broker: Broker, request: Request) -> UpdateRaftVoterResponse:
    response = UpdateRaftVoterResponse(current_leader=_leader(broker))
    try:
        _check(broker, request.body)
    except KafkaError as error:
        response.error_code = error.code
        logger.warning("UpdateRaftVoter of %s is refused: %s", request.client_id, error.message)
    return response


def _check(broker: Broker, body: UpdateRaftVoterRequest) -> None:
    image, quorum = broker.image, broker.quorum.driver.state
    node = BrokerId(body.voter_id)
    check_cluster_id(image, body.cluster_id)
    if body.current_leader_epoch != quorum.term:
        is_old = body.current_leader_epoch < quorum.term
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"the leader epoch is {quorum.term}, not {body.current_leader_epoch}",
        )
    level = image.feature_level(KRAFT_VERSION)
    known = body.kraft_version_feature
    if not known.min_supported_version <= level <= known.max_supported_version:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{KRAFT_VERSION} is {level}, but node {node} knows {known.min_supported_version} to "
            f"{known.max_supported_version}",
        )
    registered = image.broker(node)
    folders = registered.log_dirs if registered is not None else ()
    if node not in quorum.membership.voters or body.voter_directory_id not in folders:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"node {node} is not a voter, or another one")
    given = {each.name: (each.host, each.port) for each in body.listeners}
    if given.get(CONTROLLER_LISTENER) != node_address(image, node):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"node {node} has joined with {node_address(image, node)}, not with {given}",
        )


def _leader(broker: Broker) -> CurrentLeader:
    quorum = broker.quorum.driver.state
    address = None if quorum.leader is None else node_address(broker.image, quorum.leader)
    if quorum.leader is None or address is None:
        return CurrentLeader(leader_epoch=quorum.term)
    host, port = address
    return CurrentLeader(leader_id=quorum.leader, leader_epoch=quorum.term, host=host, port=port)
