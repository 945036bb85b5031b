"""What a classic member says of itself (`Subscription` v0-v3), in the broker's words.

The broker passes these bytes on unread; it asks for them to be read where a rule depends on what a
member reads: OffsetDelete (error 86), and classic members of consumer groups (KIP-848).
"""

from __future__ import annotations

from trilogue.broker.any_group import Wishes
from trilogue.broker.errors import InvalidName
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.membership import decode_subscription


def read_wishes(metadata: bytes) -> Wishes | None:
    """Read them, without names that no topic can have; None for bytes that are no such thing."""
    try:
        said = decode_subscription(metadata)
    except WireError:
        return None
    owned = ((_name(each.topic), tuple(each.partitions)) for each in said.owned_partitions)
    return Wishes(
        frozenset(name for name in map(_name, said.topics) if name is not None),
        tuple((name, partitions) for name, partitions in owned if name is not None),
        said.generation_id,
        said.rack_id,
        bytes(said.user_data or b""),
    )


def _name(spelled: str) -> TopicName | None:
    try:
        return parse_kafka(spelled)
    except InvalidName:
        return None
