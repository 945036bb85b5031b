"""DescribeClientQuotas (48) v0-v1, AlterClientQuotas (49) v0-v1: quotas of entities (KIP-546).

An entity is a user, a client id, both, or an address (KIP-612). v1 of both is flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    since,
    string,
)


@message()
class ComponentData:
    """A part of a filter: an entity type and a match type (0 exact, 1 the default, 2 any)."""

    entity_type: string = since(0)
    match_type: int8 = since(0)
    match: string | None = since(0, null=0)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest:
    """Describe the quotas that match the components, with `strict` no others."""

    components: list[ComponentData] = since(0)
    strict: boolean = since(0)


@message()
class EntityData:
    """A part of an entity: a type and a name; null is the default."""

    entity_type: string = since(0)
    entity_name: string | None = since(0, null=0)


@message()
class ValueData:
    """One quota."""

    key: string = since(0)
    value: float64 = since(0)


@message()
class DescribeQuotasEntry:
    """The quotas of one entity."""

    entity: list[EntityData] = since(0)
    values: list[ValueData] = since(0)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    """The quotas by entity."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    entries: list[DescribeQuotasEntry] | None = since(0, null=0)


@message()
class AlterQuotasOp:
    """Set one quota, or remove it."""

    key: string = since(0)
    value: float64 = since(0)
    remove: boolean = since(0)


@message()
class AlterQuotasEntry:
    """Changes for one entity."""

    entity: list[EntityData] = since(0)
    ops: list[AlterQuotasOp] = since(0)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest:
    """Change quotas, or only validate the changes."""

    entries: list[AlterQuotasEntry] = since(0)
    validate_only: boolean = since(0)


@message()
class AlterQuotasResult:
    """The result of one entity."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    entity: list[EntityData] = since(0)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    """One result per entity."""

    throttle_time_ms: int32 = since(0)
    entries: list[AlterQuotasResult] = since(0)
