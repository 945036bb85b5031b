"""Memory of tails: reusable chunks of fixed sizes, counted until their last view is gone.

Fresh memory is expensive: the kernel clears each page when it is first touched, which costs a third
of all CPU time for large entries. So chunks from 32 KiB up come in few sizes and go back to a pool;
a bounded part of the memory that the tails release waits there for the next entries, and is
returned to the system if no chunk was requested for a while. Chunks from 256 KiB up are cut off
slabs, so that memory which was touched once serves all sizes. A slab counts as a whole as long as
any chunk of it is lent.

A chunk is only free when no view of it is left, and a transport may hold one for long. Python can
report the end of an object's life, so a chunk is lent through an object with a finalizer: a
`bytearray` subclass for small ones, a ctypes array over the pooled memory for large ones. The
smallest are never lent and counted explicitly: a finalizer takes 200 bytes more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from mmap import mmap
from typing import Final

from trilogue.log.memory import mapped

POOLED_FROM: Final = 32 << 10
POOL_BYTES: Final = 64 << 20
TRIM_BYTES: Final = 8 << 20
"""How much is returned to the system at a time: unmapping takes time on the loop."""
SLAB_FROM: Final = 256 << 10
SLAB_BYTES: Final = 1 << 20
"""Few chunks each: one that a slow reader still holds keeps the whole slab."""
SLAB_SHARE: Final = 1 / 16
"""Of the limit: with larger slabs producers would wait while a slab has unused memory."""
LENT_SHARE: Final = 0.65
"""Of the limit: beyond it readers are given copies. A client that never reads its socket keeps
memory from all producers, which are paused at 80 %.
"""


class Budget:
    """The memory limit of all tails, their use of it, and the callbacks that wait for less."""

    __slots__ = (
        "_huge",
        "_is_requested",
        "_open",
        "_pool",
        "_slab_bytes",
        "limit",
        "on_release",
        "pooled",
        "used",
    )

    def __init__(
        self,
        limit: int,
        on_release: Callable[[], None],
        *,
        slab_bytes: int = SLAB_BYTES,
        huge: bool = False,
    ) -> None:
        self.limit = limit
        self.used = 0
        self.pooled = 0  # bytes that wait for reuse
        self.on_release = on_release
        self._pool: dict[int, list[bytearray | mmap]] = {}
        self._is_requested = False
        self._slab_bytes = slab_bytes
        self._huge = huge  # pages, where the memory is large enough
        self._open: _Slab | None = None  # the slab that chunks are cut off now

    @property
    def is_crowded(self) -> bool:
        """Whether no more memory may be lent to readers."""
        return self.used > LENT_SHARE * self.limit

    def chunk(self, size: int) -> memoryview:
        """Return memory of at least this size, with undefined content."""
        if size < POOLED_FROM:
            small = _Small(size)
            small.budget = self
            self.used += size
            return memoryview(small)
        size = _rounded(size)
        self._is_requested = True
        whole = self._slab_bytes
        if SLAB_FROM <= size <= whole // 2 and SLAB_SHARE * self.limit >= whole:
            slab = self._slab(size)
        else:
            slab = _Slab(self._memory(size))
        # A view may be finalized in another thread, at any call: no call between these.
        at = slab.cut
        slab.cut = at + size
        slab.lent += 1
        if slab.lent == 1:
            self.used += slab.size
        lent = _lender(size).from_buffer(slab.memory, at)
        lent.slab = slab
        lent.budget = self
        return memoryview(lent).cast("B")

    def _slab(self, size: int) -> _Slab:
        """Return the open slab if it has room, else another one."""
        slab = self._open
        if slab is None or slab.cut + size > slab.size:
            slab = self._open = _Slab(self._memory(self._slab_bytes))
        return slab

    def _memory(self, size: int) -> bytearray | mmap:
        """Return unused memory of exactly this size."""
        waiting = self._pool.get(size)
        if waiting:
            self.pooled -= size
            return waiting.pop()
        return bytearray(size) if size < SLAB_FROM else mapped(size, huge=self._huge)

    def small(self, size: int) -> bytearray:
        """Return memory that is never lent; its owner calls `take_back` when it is done with it."""
        self.used += size
        return bytearray(size)

    def take_back(self, size: int) -> None:
        """Take a small chunk off the count."""
        self.used -= size
        self.on_release()

    def release(self, slab: _Slab) -> None:
        """Handle the end of a chunk's last view; reuse the slab if it was the last chunk lent."""
        slab.lent -= 1
        if slab.lent:
            return
        if slab is self._open:
            slab.cut = 0  # before any call: see above
        elif self.pooled + slab.size <= POOL_BYTES:
            self._pool.setdefault(slab.size, []).append(slab.memory)
            self.pooled += slab.size
        self.used -= slab.size
        self.on_release()

    def trim(self) -> None:
        """Free a part of the pool if it was not used since the last call."""
        requested, self._is_requested = self._is_requested, False
        if requested:
            return
        if self._open is not None and not self._open.lent:
            self._open = None
        freed = 0
        for size, waiting in list(self._pool.items()):  # another thread may add a size meanwhile
            while waiting and freed < TRIM_BYTES:
                waiting.pop()
                freed += size
        self.pooled -= freed


class _Small(bytearray):
    """A small chunk; it counts until it is finalized."""

    __slots__ = ("budget",)
    budget: Budget

    def __del__(self) -> None:
        self.budget.take_back(len(self))


class _Slab:
    """Memory that chunks are cut off one after the other; it is free when none of them is lent."""

    __slots__ = ("cut", "lent", "memory", "size")

    def __init__(self, memory: bytearray | mmap) -> None:
        self.memory = memory
        self.size = len(memory)
        self.cut = 0  # where the next chunk begins
        self.lent = 0  # chunks in use


class _Lent(ctypes.Array[ctypes.c_ubyte]):
    """A large chunk while it is lent; its memory outlives it."""

    _type_ = ctypes.c_ubyte
    _length_ = 0
    slab: _Slab
    budget: Budget

    def __del__(self) -> None:
        self.budget.release(self.slab)


_lenders: dict[int, type[_Lent]] = {}


def _lender(size: int) -> type[_Lent]:
    lender = _lenders.get(size)
    if lender is None:
        lender = _lenders[size] = type("_Lent", (_Lent,), {"_length_": size})
    return lender


def _rounded(size: int) -> int:
    """Round up to one of eight sizes per doubling, so that few sizes serve all."""
    step = 1 << max(size.bit_length() - 4, 12)
    return -(-size // step) * step
