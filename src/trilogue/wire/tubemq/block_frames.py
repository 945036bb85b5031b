# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Cuts the frames of TubeMQ's RPC protocol from a stream.

On the wire a frame is a list of blocks. Their cuts mean nothing: they are where Java's buffers
ended.

    +---------------+----------------+----------------+--------------+-------+--------------+---
    | token         | serialNo int32 | listSize int32 | length int32 | bytes | length int32 | ...
    | ff 7f f4 fe   |                | 0 .. 3584      |<----------- listSize times ------------>
    +---------------+----------------+----------------+--------------+-------+--------------+---

A frame with nothing behind its serial number (listSize 0) is ignored, as by real servers. A wrong
token ends the connection, because the begin of the next frame is unknown then.

Compiled (block_frames.pxd adds the types), since it runs for every request; uncompiled it is plain
Python.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.frames import ReceiveBuffer

if not cython.compiled:  # block_frames.pxd imports the compiled version
    from trilogue.wire.memory import copy, signed32, uint32_at, writable_bytes_of

TOKEN: Final = 0xFF7FF4FE
BLOCK_SIZE: Final = 8192
"""The size of encoded blocks; blocks of any size are read."""
MAX_BLOCKS: Final = 3584
MAX_FRAME_SIZE: Final = MAX_BLOCKS * BLOCK_SIZE
"""The longest frame that real servers and clients read: 28 MiB."""
SERIAL_SIZE: Final = 4
"""A frame no longer than this is empty and ignored."""

# block_frames.pxd declares these as C variables.
_TOKEN = TOKEN
_MAX_BLOCKS = MAX_BLOCKS
_HEAD_SIZE = 12
_SERIAL_SIZE = SERIAL_SIZE
_SERIAL_AT = 4
_BLOCKS_AT = 8
_LENGTH_SIZE = 4
_EMPTY = Struct(">Iii").unpack_from  # the head of a frame without blocks
_LENGTH = Struct(">I").unpack_from


class BlockFrames(ReceiveBuffer):
    """Cuts frames from a stream and joins their blocks in place, however the bytes arrive.

        start       +12      +16         joined          scan                 end
        +-----------+--------+-----------+---------------+--------------------+------
        | token ... | serial | blocks    | where lengths | the next block,    | free
        |           | number | so far    | stood         | not yet whole      |
        +-----------+--------+-----------+---------------+--------------------+------

    The state of a frame is kept between calls: a frame that arrives in small pieces is not scanned
    again, and each byte is moved once. `limit` bounds the bytes of all blocks of a frame.
    """

    __slots__ = ("_blocks", "_joined", "_length", "_scan")

    def __init__(self, limit: int = MAX_FRAME_SIZE) -> None:
        super().__init__(limit)
        self._blocks = 0  # blocks still to be joined; 0: no frame has begun
        self._joined = self._scan = 0
        self._length = -1  # of the block at `scan`, or -1 while its length is to come

    def next(self) -> memoryview | None:
        """Return the next frame, serial number first, or None until more bytes arrive.

        The view is valid until `get_buffer`. Raises WireError for a wrong token, too many blocks,
        or more bytes than the limit.
        """
        if self._blocks:
            return self._join()
        start = self._start
        first = start + _HEAD_SIZE + _LENGTH_SIZE
        if first > self._end:
            return self._empty() if self._end - start >= _HEAD_SIZE else None
        data = writable_bytes_of(self._buffer)
        token = uint32_at(data, start)
        blocks = signed32(uint32_at(data, start + _BLOCKS_AT))
        length = uint32_at(data, start + _HEAD_SIZE)
        if token != _TOKEN or not 0 < blocks <= _MAX_BLOCKS or length > self.limit:
            return self._unusual(token, blocks, length)
        stop = first + length
        serial = first - _SERIAL_SIZE
        copy(data, serial, data, start + _SERIAL_AT, _SERIAL_SIZE)
        if blocks == 1 and stop <= self._end:
            if stop == self._end:
                self._start = self._end = 0  # what comes next goes to the front
            else:
                self._start = stop
            return self._buffer[serial:stop]
        self._blocks, self._length = blocks, length
        self._joined = self._scan = first
        return self._join()

    def _unusual(self, token: int, blocks: int, length: int) -> memoryview | None:
        """Return a frame without blocks, or raise WireError for a malformed head."""
        if token != TOKEN:
            raise WireError(f"a frame that begins with {token:08x}")
        if not 0 <= blocks <= MAX_BLOCKS:
            raise WireError(f"a frame of {blocks} blocks, the limit is {MAX_BLOCKS}")
        if blocks:
            raise WireError(f"a frame of {length} bytes and more, the limit is {self.limit}")
        return self._empty()

    def _empty(self) -> memoryview | None:
        """Return a frame without blocks: its serial number alone."""
        start = self._start
        token, _, blocks = _EMPTY(self._buffer, start)
        if token != TOKEN or not 0 <= blocks <= MAX_BLOCKS:
            self._unusual(token, blocks, 0)
        if blocks:
            return None
        self._start = start + _HEAD_SIZE
        return self._buffer[start + _SERIAL_AT : start + _BLOCKS_AT]

    def _join(self) -> memoryview | None:
        """Join the blocks that have arrived; return the frame once it is whole."""
        buffer, end, begin = self._buffer, self._end, self._start + _HEAD_SIZE
        room = begin + SERIAL_SIZE + self.limit
        joined, scan, length = self._joined, self._scan, self._length
        while True:
            if length < 0:
                if scan + _LENGTH_SIZE > end:
                    break
                (length,) = _LENGTH(buffer, scan)
                if length > room - joined:
                    self._joined, self._scan, self._length = joined, scan, -1
                    size = joined - begin - SERIAL_SIZE + length
                    raise WireError(f"a frame of {size} bytes and more, the limit is {self.limit}")
                scan += _LENGTH_SIZE
            stop = scan + length
            if stop > end:
                break
            if joined != scan:
                buffer[joined : joined + length] = buffer[scan:stop]
            joined += length
            scan, length = stop, -1
            self._blocks -= 1
            if not self._blocks:
                self._start = scan
                return buffer[begin:joined]
        self._joined, self._scan, self._length = joined, scan, length
        return None

    def frame_bytes(self) -> int:
        """Bytes of the frame that has begun; blocks to come are taken for whole ones."""
        more = max(0, self._blocks - 1) * (_LENGTH_SIZE + BLOCK_SIZE)
        return super().frame_bytes() + min(more, self.limit)

    def _missing(self) -> int:
        if not self._blocks:
            return max(1, _HEAD_SIZE + _LENGTH_SIZE - self.pending)
        wanted = _LENGTH_SIZE if self._length < 0 else self._length
        return max(1, self._scan + wanted - self._end)

    def _move(self, start: int) -> None:
        self._joined += start - self._start
        self._scan += start - self._start
        super()._move(start)

    def _make_room(self) -> None:
        """Close the gap that joining left before the buffer grows."""
        if self._blocks and self._joined < self._scan:
            rest = self._end - self._scan
            self._buffer[self._joined : self._joined + rest] = self._buffer[self._scan : self._end]
            self._scan, self._end = self._joined, self._joined + rest
        super()._make_room()
