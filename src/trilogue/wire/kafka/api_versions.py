"""ApiVersions (18), v0-4: what a client asks first.

v1 adds the throttle time, v3 is flexible and names the client's software, v4 lets a feature's
lowest level be 0.  The response header is v0 in every version, so that a client can read the
refusal of a version it guessed (see `header.py`).
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int16, int32, int64, message, since, string


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """Asks which requests this broker serves."""

    client_software_name: string = since(3)
    client_software_version: string = since(3)


@message()
class ApiVersion:
    """One request: the versions served."""

    api_key: int16 = since(0)
    min_version: int16 = since(0)
    max_version: int16 = since(0)


@message()
class SupportedFeatureKey:
    """A feature and the levels this broker can run."""

    name: string = since(3)
    min_version: int16 = since(3)
    max_version: int16 = since(3)


@message()
class FinalizedFeatureKey:
    """A feature and the levels the whole cluster runs."""

    name: string = since(3)
    max_version_level: int16 = since(3)
    min_version_level: int16 = since(3)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """The table of what is served, and cluster-wide features as tagged fields."""

    error_code: int16 = since(0)
    api_keys: list[ApiVersion] = since(0)
    throttle_time_ms: int32 = since(1)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0)
    finalized_features_epoch: int64 = since(3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2)
    zk_migration_ready: boolean = since(3, tag=3)
