"""ApiVersions (18) v0-v4: the APIs and versions that a broker serves.

v1 throttle time · v2 unchanged · v3 flexible, client software name and version, features · v4
features whose lowest level is 0. The response header is v0 in every version, so that a client can
decode the refusal of a version that it guessed (`wire/kafka/codec/header.py`).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """Get the versions of all APIs."""

    client_software_name: string = since(3)
    client_software_version: string = since(3)


@message()
class ApiVersion:
    """The version range of one API."""

    api_key: int16 = since(0)
    min_version: int16 = since(0)
    max_version: int16 = since(0)


@message()
class SupportedFeatureKey:
    """A feature and the levels that this broker supports."""

    name: string = since(3)
    min_version: int16 = since(3)
    max_version: int16 = since(3)


@message()
class FinalizedFeatureKey:
    """A feature and its level in the cluster."""

    name: string = since(3)
    max_version_level: int16 = since(3)
    min_version_level: int16 = since(3)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """The version ranges, and features as tagged fields."""

    error_code: int16 = since(0)
    api_keys: list[ApiVersion] = since(0)
    throttle_time_ms: int32 = since(1)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0)
    finalized_features_epoch: int64 = since(3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2)
    zk_migration_ready: boolean = since(3, tag=3)
