"""RemoveRaftVoter: API key 81, version 0.

KIP-853. Any node takes it. The node stays in the cluster and goes on to follow the metadata log; it
votes again when AddRaftVoter says so, not by itself (KAFKA-19850). A leader that is removed hands
over first. Refused for the last voter, and while the other voters could not decide anything.

The work is in `cluster.quorum_members`.
"""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.server.broker import Broker
from headrace.server.change_texts import ChangeText
from headrace.server.proposals import told
from headrace.server.reach import check_cluster_id
from headrace.server.request import Request
from headrace.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from headrace.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse

REMOVE_TIMEOUT_MS: Final = 20_000
"""The request has no timeout; clients wait 30 seconds."""


async def handle(broker: Broker, request: Request) -> RemoveRaftVoterResponse:
    body: RemoveRaftVoterRequest = request.body
    try:
        check_cluster_id(broker.image, body.cluster_id)
        if body.voter_id < 0 or not any(body.voter_directory_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a voter is an id of 0 or more and a directory id"
            )
        with told(broker, request, ChangeText("RemoveVoter", "node", str(body.voter_id))):
            await broker.members.remove(
                BrokerId(body.voter_id), body.voter_directory_id, REMOVE_TIMEOUT_MS
            )
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse(error_message=None)
