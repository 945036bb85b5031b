"""Log lines about what a client does again and again: one of each event for a connection."""

from __future__ import annotations

import logging
from typing import Protocol as Port

from trilogue.gateway.stream import Stream


class LoggedConnection(Port):
    """A connection, and the events of it that were logged."""

    stream: Stream
    logged_events: tuple[str, ...]


def log_once(
    connection: LoggedConnection, log: logging.Logger, event: str, **details: object
) -> None:
    """Log a warning unless the connection has had one of this event: a client may send millions."""
    if event in connection.logged_events:
        return
    connection.logged_events = (*connection.logged_events, event)
    log.warning(event, extra={"address": connection.stream.peer[0], **details})
