"""UpdateFeatures (57), v0-2: raise or lower what the whole cluster runs (KIP-584).

v1 kinds of changes and a dry run, v2 one outcome for all instead of one for each.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int8, int16, int32, message, since, string


@message()
class FeatureUpdateKey:
    """A feature and the level it shall have; below 1 it shall be gone."""

    feature: string = since(0)
    max_version_level: int16 = since(0)
    allow_downgrade: boolean = since(0, until=0)
    upgrade_type: int8 = since(1, default=1)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    """Change levels, or say whether that would do."""

    timeout_ms: int32 = since(0, default=60000)
    feature_updates: list[FeatureUpdateKey] = since(0)
    validate_only: boolean = since(1)


@message()
class UpdatableFeatureResult:
    """The outcome for one feature."""

    feature: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """Outcomes, or the one that spoils all of them."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    results: list[UpdatableFeatureResult] = since(0, until=1)
