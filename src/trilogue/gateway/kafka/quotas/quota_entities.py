"""Kafka's names of quotas and of entity types, for both quota APIs."""

from __future__ import annotations

from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PARTS = (USER, CLIENT_ID, IP)  # in the order of `QuotaEntity`

BOUNDS: dict[str, QuotaKind] = {
    "producer_byte_rate": QuotaKind.PRODUCED,
    "consumer_byte_rate": QuotaKind.FETCHED,
    "request_percentage": QuotaKind.WORK,
    "controller_mutation_rate": QuotaKind.CHANGES,
    "connection_creation_rate": QuotaKind.CONNECTIONS,
}
KEYS: dict[QuotaKind, str] = {bound: key for key, bound in BOUNDS.items()}


def describe_entity(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Return the entity's parts as Kafka reports them: sorted, null for the default."""
    parts = zip(PARTS, entity, strict=True)
    return sorted(
        (kind, name if name != DEFAULT else None) for kind, name in parts if name is not None
    )
