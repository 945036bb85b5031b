"""AlterClientQuotas (49), v0-1, as asked: set or remove bounds of users, client ids, addresses.

KIP-546; v1 is flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, float64, message, since, string


@message()
class EntityData:
    """A part of whom: a kind and a name; null is the default."""

    entity_type: string = since(0)
    entity_name: string | None = since(0, null=0)


@message()
class OpData:
    """Set one bound, or remove it."""

    key: string = since(0)
    value: float64 = since(0)
    remove: boolean = since(0)


@message()
class EntryData:
    """Changes for one entity."""

    entity: list[EntityData] = since(0)
    ops: list[OpData] = since(0)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest:
    """Change bounds, or only say whether that would work."""

    entries: list[EntryData] = since(0)
    validate_only: boolean = since(0)
