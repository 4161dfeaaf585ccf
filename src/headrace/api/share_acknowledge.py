"""ShareAcknowledge: API key 79, versions 1 and 2.

KIP-932 (share groups), KIP-1222 (renewal, from 2). The response is sent when the acknowledgements
are durable. Each partition stands for itself: if one of its acknowledgements is refused, none of
them counts. The final epoch ends the session, and what the member still holds is available to
others.

The work is in `share.acknowledging` and `share.partition.acknowledgement`.
"""

from headrace.api.share_acknowledgements import Acknowledging
from headrace.api.share_responses import acknowledge_response
from headrace.errors import ErrorCode, KafkaError
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse


def handle(broker: Broker, request: Request) -> Answer:
    body: ShareAcknowledgeRequest = request.body
    try:
        session = _session(broker, body)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    acknowledging = Acknowledging()
    acknowledging.begin(
        broker,
        session,
        body.topics,
        is_renew_allowed=body.is_renew_ack,
        denied=request.denied if broker.authorizer is not None else None,
    )
    if body.share_session_epoch == FINAL_EPOCH:
        broker.share_partitions.end_session(session)
    if acknowledging.is_done:
        return _response(broker, request, session, acknowledging)

    def send() -> None:
        if not request.peer.is_closed:
            request.answer(_response(broker, request, session, acknowledging))

    acknowledging.when_done(send)
    return LATER


def _session(broker: Broker, body: ShareAcknowledgeRequest) -> ShareSession:
    """Find the session of a request; KafkaError if it has none, or not with that epoch."""
    sessions, epoch = broker.share_partitions.sessions, body.share_session_epoch
    if body.group_id is None or not body.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "acknowledging needs a group and a member")
    if epoch == INITIAL_EPOCH:
        raise KafkaError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a share fetch"
        )
    if epoch == FINAL_EPOCH:
        return sessions.find(body.group_id, body.member_id)
    return sessions.resume(body.group_id, body.member_id, epoch)


def _response(
    broker: Broker, request: Request, session: ShareSession, acknowledging: Acknowledging
) -> ShareAcknowledgeResponse:
    limits = broker.share_partitions.settings_of(session.group_id).limits
    return acknowledge_response(
        broker, acknowledging.errors, request.peer.listener, limits.lock_duration_ms
    )
