"""ApiVersions v0-v4: which requests this door serves; asked first, before any login.

v1 throttle time · v2 - · v3 flexible; the client's software name and version, checked as Kafka does
(error 42) · v4 features that begin with level 0. One feature is told, `group.version` 1: the groups
of KIP-848 are served. A version that we do not know is answered in v0 with error 35 and the range
of this API alone (connection.py).
"""

from __future__ import annotations

import re

from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from trilogue.wire.kafka.errors import ErrorCode

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3
LEVEL_0_SINCE = 4  # older clients cannot read a feature whose lowest level is 0
FEATURES_EPOCH = 1  # the set of features never changes while a node runs
GROUPS = SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
GROUPS_NOW = FinalizedFeatureKey(name="group.version", min_version_level=1, max_version_level=1)


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Tell the table."""
    if call.version >= SOFTWARE_SINCE and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=call.door.versions,
        supported_features=[GROUPS] if call.version >= LEVEL_0_SINCE else [],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[GROUPS_NOW],
    )
