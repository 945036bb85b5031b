"""UpdateFeatures v0-v2: change feature levels of the cluster (KIP-584).

v1 upgrade types, validate-only · v2 one result for all features.

The levels in ApiVersions are those of the running program and cannot change. A request for exactly
these levels succeeds (0). Any other level or feature fails the whole request (95), as in Kafka
since 4.0.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.gateway.kafka.metadata.api_versions import FINALIZED
from trilogue.wire.kafka.cluster.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

LEVELS = {each.name: each.max_version_level for each in FINALIZED}


def handle_update_features(
    context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Accept the current levels and refuse all others."""
    if not context.is_allowed(CLUSTER.name):
        return UpdateFeaturesResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.text
        )
    for each in request.feature_updates:
        if wrong := _find_problem(each):
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=wrong
            )
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=each.feature, error_message=None)
            for each in request.feature_updates
        ],
    )


def _find_problem(requested: FeatureUpdateKey) -> str:
    level = LEVELS.get(requested.feature)
    if level is None:
        return f"there is no feature {requested.feature}: there is {', '.join(LEVELS)}"
    if requested.max_version_level != level:
        return f"{requested.feature} is {level} in this program, and cannot be changed"
    return ""
