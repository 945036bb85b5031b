"""ApiVersions v0-v4: the APIs and versions that the gateway serves; precedes authentication.

v1 throttle time · v2 unchanged · v3 flexible; the client's software name and version, checked as in
Kafka (42) · v4 features that begin with level 0. The features are `group.version` 1 (KIP-848
groups), `share.version` 1 (share groups, KIP-932), `streams.version` 1 (streams groups, KIP-1071)
and `transaction.version` 2 (KIP-890); clients that do not know the last use the rules of version 1.
An unknown version is answered in v0 with 35 and the range of this API alone
(gateway/kafka/connection.py). Trilogue's client, by its software name, gets Trilogue's own APIs,
and the brokers of the internal listener those between brokers.
"""

from __future__ import annotations

import re

from trilogue.gateway.kafka.context import RequestContext
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3
CLIENT_MAX = 256  # characters of a client's id, name and version that are kept
OWN_SOFTWARE = "trilogue"
LEVEL_0_SINCE = 4  # older clients cannot decode a feature with lowest level 0
FEATURES_EPOCH = 1  # the features never change while a node runs
GROUPS = SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
GROUPS_NOW = FinalizedFeatureKey(name="group.version", min_version_level=1, max_version_level=1)
SHARES = SupportedFeatureKey(name="share.version", min_version=0, max_version=1)
SHARES_NOW = FinalizedFeatureKey(name="share.version", min_version_level=1, max_version_level=1)
STREAMS = SupportedFeatureKey(name="streams.version", min_version=0, max_version=1)
STREAMS_NOW = FinalizedFeatureKey(name="streams.version", min_version_level=1, max_version_level=1)
TRANSACTIONS = SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)
TRANSACTIONS_NOW = FinalizedFeatureKey(
    name="transaction.version", min_version_level=2, max_version_level=2
)
SUPPORTED = [GROUPS, SHARES, STREAMS, TRANSACTIONS]
FINALIZED = [GROUPS_NOW, SHARES_NOW, STREAMS_NOW, TRANSACTIONS_NOW]


def handle_api_versions(
    context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Return the version ranges and the features."""
    if context.version >= SOFTWARE_SINCE and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    software = f"{request.client_software_name} {request.client_software_version}"
    context.session.client_version = f"{context.client_id or ''} {software}".strip()[:CLIENT_MAX]
    is_own = request.client_software_name == OWN_SOFTWARE
    return ApiVersionsResponse(
        api_keys=context.advertised_versions(own=is_own),
        supported_features=SUPPORTED if context.version >= LEVEL_0_SINCE else [],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=FINALIZED,
    )
