"""ApiVersions: API key 18, versions 0 to 4.

KIP-35, KIP-511 (the client's software, from 3), KIP-584 (features: what this node supports, what
the cluster is finalized at). A version that is not served gets a response of version 0 with
UNSUPPORTED_VERSION; as in Kafka its only row is that of ApiVersions itself, by which the client
asks again. Before version 4, features that begin at zero are left out of what is supported, because
clients of that time refuse them.

Clients ask before they have authenticated, and whenever they connect, so a response is kept as
bytes, as long as the metadata stays as it is.
"""

import re
from typing import Final

from headrace.errors import ErrorCode
from headrace.metadata.features import SUPPORTED
from headrace.server.broker import Broker
from headrace.server.dispatch import served_versions
from headrace.server.request import LATER, Answer, Request
from headrace.wire import APIS, Api, ApiKey, response_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FIRST_WITH_SOFTWARE: Final = 3
FIRST_WITH_ZERO_LEVELS: Final = 4
SOFTWARE_CHARACTERS_MAX: Final = 128
"""How much is kept of what a client says it is."""
TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
"""Listed only while there are metrics subscriptions; otherwise clients would ask in vain."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: Request) -> Answer:
    body: ApiVersionsRequest | None = request.body
    if body is None:
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[_row(APIS[ApiKey.API_VERSIONS])],
        )
    if request.version >= FIRST_WITH_SOFTWARE:
        name, version = body.client_software_name, body.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        request.peer.client_software = f"{name} {version}"[:SOFTWARE_CHARACTERS_MAX]
    if request.is_metered:
        return _response(broker, request.version)
    state = broker.image.applied_index, broker.telemetry.has_subscriptions
    kept = broker.version_responses.get(request.version)
    if kept is None or kept[0] != state:
        body_now = _response(broker, request.version)
        parts = response_parts(ApiKey.API_VERSIONS, request.version, 0, body_now)
        kept = broker.version_responses[request.version] = state, parts
    request.answer_again(kept[1])
    return LATER


def _response(broker: Broker, version: int) -> ApiVersionsResponse:
    image = broker.image
    return ApiVersionsResponse(
        api_keys=[
            _row(api)
            for api in broker.served_apis
            if api.key not in TELEMETRY or broker.telemetry.has_subscriptions
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.minimum, max_version=levels.maximum)
            for name, levels in SUPPORTED.items()
            if levels.minimum or version >= FIRST_WITH_ZERO_LEVELS
        ],
        finalized_features_epoch=image.applied_index,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.state.features.items()
        ],
    )


def _row(api: Api) -> ApiVersion:
    versions = served_versions(api)
    # As Kafka does (KAFKA-18659): librdkafka takes Produce v0 for the sign that a broker knows
    # compression. Who really sends it is refused.
    first = 0 if api.key == ApiKey.PRODUCE else versions.start
    return ApiVersion(api_key=api.key, min_version=first, max_version=versions.stop - 1)
