"""The neutral message: the common form of the messages of all protocols.

Entries are stored as their producers sent them; only a reader of another protocol gets them
converted, and every conversion makes neutral messages first (docs/reference/conversion.md has the
mapping). A tuple, since a conversion makes one per message.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One message. A value of None is a tombstone; headers are ordered and may repeat."""

    value: bytes | None
    key: bytes | None = None
    ordering_key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    type: str | None = None  # TubeMQ's stream filters select by it
    event_time_ms: int | None = None
    publish_time_ms: int | None = None

    @property
    def time_ms(self) -> int | None:
        """The event time, or the publish time where there is no event time, in ms since 1970."""
        return self.publish_time_ms if self.event_time_ms is None else self.event_time_ms
