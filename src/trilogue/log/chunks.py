"""Memory for tails: pieces of a fixed size, counted until their last view is gone, used again.

Fresh memory is dear: the kernel clears each page when it is first touched, which costs a third of
all the CPU that large entries take. So pieces from 32 KiB up come in few sizes and go back to a
pool; a bounded part of what the tails let go waits there for the next entries, and is given back to
the system when nobody asked for it for a while. Pieces from 256 KiB up are cut off slabs, so that
memory which was touched once serves all sizes. A slab counts whole as long as any of it is lent.

A piece is only free when no view of it is left, and a transport may hold one for long. Python tells
when an object dies, so a piece is lent through one that does: a `bytearray` of its own for small
ones, a ctypes array over the pooled memory for large ones. The smallest are never lent and counted
by hand: what tells when it dies takes 200 bytes more than what does not.
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
"""How much goes back to the system at a time: giving back takes time on the loop."""
SLAB_FROM: Final = 256 << 10
SLAB_BYTES: Final = 1 << 20
"""Few pieces each: one that a slow reader still looks at holds the whole slab."""
SLAB_SHARE: Final = 1 / 16
"""Of the limit: a slab that were more of it would make producers wait for what it has left."""
LENT_SHARE: Final = 0.65
"""Of the limit: beyond it readers are given copies. One that never takes what it was sent keeps
memory from all producers, who are made to wait at 80 %."""


class Budget:
    """How much memory all tails may take, how much they do, and what waits for them."""

    __slots__ = (
        "_asked",
        "_huge",
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
        self.pooled = 0  # bytes that wait to be used again
        self.on_release = on_release
        self._pool: dict[int, list[bytearray | mmap]] = {}
        self._asked = False
        self._slab_bytes = slab_bytes
        self._huge = huge  # pages, where the memory is large enough
        self._open: _Slab | None = None  # the one that pieces are cut off now

    @property
    def is_crowded(self) -> bool:
        """Whether no more of it may be lent to readers."""
        return self.used > LENT_SHARE * self.limit

    def chunk(self, size: int) -> memoryview:
        """Return memory of at least this size; what it holds is anybody's guess."""
        if size < POOLED_FROM:
            small = _Small(size)
            small.budget = self
            self.used += size
            return memoryview(small)
        size = _rounded(size)
        self._asked = True
        whole = self._slab_bytes
        if SLAB_FROM <= size <= whole // 2 and SLAB_SHARE * self.limit >= whole:
            slab = self._slab(size)
        else:
            slab = _Slab(self._memory(size))
        # A view may die in another thread, at any call: no call between these.
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
        """The open slab if it has room, else another one."""
        slab = self._open
        if slab is None or slab.cut + size > slab.size:
            slab = self._open = _Slab(self._memory(self._slab_bytes))
        return slab

    def _memory(self, size: int) -> bytearray | mmap:
        """Memory of exactly this size that nobody uses."""
        waiting = self._pool.get(size)
        if waiting:
            self.pooled -= size
            return waiting.pop()
        return bytearray(size) if size < SLAB_FROM else mapped(size, huge=self._huge)

    def small(self, size: int) -> bytearray:
        """Return memory that is never lent; whoever has it says `take_back` in the end."""
        self.used += size
        return bytearray(size)

    def take_back(self, size: int) -> None:
        """A small piece is not needed any more."""
        self.used -= size
        self.on_release()

    def release(self, slab: _Slab) -> None:
        """The last view of a piece of it is gone."""
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
        """Give some of the pool back if nobody asked for any since the last call."""
        asked, self._asked = self._asked, False
        if asked:
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
    """A small piece; it counts until it dies."""

    __slots__ = ("budget",)
    budget: Budget

    def __del__(self) -> None:
        self.budget.take_back(len(self))


class _Slab:
    """Memory that pieces are cut off one after the other; it is free when none of them is lent."""

    __slots__ = ("cut", "lent", "memory", "size")

    def __init__(self, memory: bytearray | mmap) -> None:
        self.memory = memory
        self.size = len(memory)
        self.cut = 0  # where the next piece begins
        self.lent = 0  # pieces that somebody looks at


class _Lent(ctypes.Array[ctypes.c_ubyte]):
    """A large piece while it is lent; its memory outlives it."""

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
