"""The errors of codecs: WireError is the peer's fault, EncodeError the caller's."""

from __future__ import annotations


class WireError(Exception):
    """The peer sent bytes that are not a message; its connection is closed."""


class FrameTooLarge(WireError):
    """The peer began a frame that is longer than the receiver takes."""


class EncodeError(WireError):
    """The message to encode has a value that this version cannot express."""
