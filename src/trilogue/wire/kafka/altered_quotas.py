"""AlterClientQuotas (49), v0-1, as answered. Apart, since both speak of an `EntryData`."""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, message, since, string


@message()
class EntityData:
    """A part of whom, as it was asked."""

    entity_type: string = since(0)
    entity_name: string | None = since(0, null=0)


@message()
class EntryData:
    """The outcome for one entity."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    entity: list[EntityData] = since(0)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    """One outcome per entity."""

    throttle_time_ms: int32 = since(0)
    entries: list[EntryData] = since(0)
