"""What the wire may raise: one error, and a kind of it that tells whose fault it was."""

from __future__ import annotations


class WireError(Exception):
    """The peer sent bytes that are not a message: they cost their sender the connection."""


class EncodeError(WireError):
    """We asked for a message that this version cannot express: our fault, never the peer's."""
