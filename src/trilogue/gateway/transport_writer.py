# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Writes replies to the transport of one connection, as long as it has one.

Compiled (transport_writer.pxd adds the types), since it runs once per reply; uncompiled it is plain
Python. See docs/decisions/0061.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class TransportWriter:
    """The transport, and whether its buffer is full."""

    __slots__ = ("is_paused", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None  # while connected
        self.is_paused = False  # whether the peer does not read what was written

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write whole replies with one call; they must not be changed afterwards."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def send_one(self, buffer: bytes | bytearray | memoryview) -> None:
        """Write a whole reply in one piece; it must not be changed afterwards."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(buffer)
