"""The neutral message: what a message is when no protocol is looking.

Entries are kept as their producers sent them; only a reader that speaks another protocol gets them
converted, and every conversion passes through this (docs/reference/conversion.md: what maps to
what). A tuple, since a conversion makes one per message.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One message. A value of None is a tombstone; headers are ordered and may repeat."""

    value: bytes | None
    key: bytes | None = None
    ordering_key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    type: str | None = None  # what a stream filter selects by
    event_time_ms: int | None = None
    publish_time_ms: int | None = None

    @property
    def time_ms(self) -> int | None:
        """When it happened, or else when it was published."""
        return self.publish_time_ms if self.event_time_ms is None else self.event_time_ms
