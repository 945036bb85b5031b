"""What Kafka calls quotas, and our names for the same; shared by the two requests about them."""

from __future__ import annotations

from trilogue.broker.quotas import DEFAULT, Bound, Who

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PARTS = (USER, CLIENT_ID, IP)  # in the order of `Who`

BOUNDS: dict[str, Bound] = {
    "producer_byte_rate": Bound.PRODUCED,
    "consumer_byte_rate": Bound.FETCHED,
    "request_percentage": Bound.WORK,
    "controller_mutation_rate": Bound.CHANGES,
    "connection_creation_rate": Bound.CONNECTIONS,
}
KEYS: dict[Bound, str] = {bound: key for key, bound in BOUNDS.items()}


def entity(who: Who) -> list[tuple[str, str | None]]:
    """The parts that a quota is for, as Kafka tells them: sorted, and null for the default."""
    parts = zip(PARTS, who, strict=True)
    return sorted(
        (kind, name if name != DEFAULT else None) for kind, name in parts if name is not None
    )
