"""UpdateFeatures (57) v0-v2: change feature levels of the cluster (KIP-584).

v1 upgrade types and validate-only · v2 one result for all features.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int8, int16, int32, message, since, string


@message()
class FeatureUpdateKey:
    """A feature and its new level; below 1 removes it."""

    feature: string = since(0)
    max_version_level: int16 = since(0)
    allow_downgrade: boolean = since(0, until=0)
    upgrade_type: int8 = since(1, default=1)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    """Change levels, or only validate the changes."""

    timeout_ms: int32 = since(0, default=60000)
    feature_updates: list[FeatureUpdateKey] = since(0)
    validate_only: boolean = since(1)


@message()
class UpdatableFeatureResult:
    """The result of one feature."""

    feature: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """Results by feature, and a top-level error."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    results: list[UpdatableFeatureResult] = since(0, until=1)
