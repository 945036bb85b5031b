"""UpdateFeatures v0-v2: raise or lower what the whole cluster runs (KIP-584).

v1 kinds of changes and a dry run · v2 one outcome for all.

What a node runs is what its program knows: the levels that ApiVersions tells hold and cannot be
changed. To ask for just these is done at once (0); any other level or feature is refused (95), and
then, as by a real one since 4.0, all of the request.
"""

from __future__ import annotations

from trilogue.broker.access import CLUSTER
from trilogue.gateway.kafka.api_versions import GROUPS_NOW
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

LEVELS = {GROUPS_NOW.name: GROUPS_NOW.max_version_level}


def handle(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Say that it is so, or why it cannot be."""
    if not call.allowed(CLUSTER.name):
        return UpdateFeaturesResponse(error_code=NOT_ALLOWED.code, error_message=NOT_ALLOWED.text)
    for each in request.feature_updates:
        if wrong := _wrong(each):
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


def _wrong(asked: FeatureUpdateKey) -> str:
    level = LEVELS.get(asked.feature)
    if level is None:
        return f"there is no feature {asked.feature}: there is {', '.join(LEVELS)}"
    if asked.max_version_level != level:
        return f"{asked.feature} is {level} in this program, and cannot be changed"
    return ""
