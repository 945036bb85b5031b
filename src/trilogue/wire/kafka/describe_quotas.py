"""DescribeClientQuotas (48), v0-1: which bounds are set for whom (KIP-546). v1 is flexible."""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, float64, int8, int16, int32, message, since, string


@message()
class ComponentData:
    """A part of whom: a kind and which of it (0 this one, 1 the default, 2 any named)."""

    entity_type: string = since(0)
    match_type: int8 = since(0)
    match: string | None = since(0, null=0)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest:
    """Tell the bounds of whom these parts describe, with `strict` of nobody else."""

    components: list[ComponentData] = since(0)
    strict: boolean = since(0)


@message()
class EntityData:
    """A part of whom: a kind and a name; null is the default."""

    entity_type: string = since(0)
    entity_name: string | None = since(0, null=0)


@message()
class ValueData:
    """One bound."""

    key: string = since(0)
    value: float64 = since(0)


@message()
class EntryData:
    """The bounds of one entity."""

    entity: list[EntityData] = since(0)
    values: list[ValueData] = since(0)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    """The bounds by entity."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    entries: list[EntryData] | None = since(0, null=0)
