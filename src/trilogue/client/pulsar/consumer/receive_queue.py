"""Received messages that wait for the application, in the order of each topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from trilogue.client.pulsar.consumer.pending_entry import PendingEntry
from trilogue.client.pulsar.entry_memory import EntryMemory
from trilogue.client.pulsar.errors import BadMessage
from trilogue.client.pulsar.message import Message, MessageOwner


class ReceiveQueue:
    """A queue that several topics fill and several receivers empty.

    With a `memory` the entries wait undecoded, and `decode_next` makes messages of them.
    """

    def __init__(self, memory: EntryMemory | None = None) -> None:
        self.messages: deque[Message] = deque()
        self.entries: deque[PendingEntry] = deque()
        self.memory = memory
        self._decoding = asyncio.Lock()
        self._chunk_bytes = 0
        self._taken_bytes = 0  # of the entry of the messages that were taken last
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether a receiver waits for a message."""
        return any(not waiter.done() for waiter in self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether no message is there, decoded or not."""
        return not self.messages and not self.entries

    def __len__(self) -> int:
        """How many messages and entries wait."""
        return len(self.messages) + len(self.entries)

    def put_entry(self, entry: PendingEntry) -> bool:
        """Add an entry and wake a receiver; return whether there is room for it."""
        self.entries.append(entry)
        self._wake(1)
        return self._count_bytes()

    def count_chunks(self, change_bytes: int) -> bool:
        """Count the bytes of chunks that wait for others; return whether there is room."""
        self._chunk_bytes += change_bytes
        return self._count_bytes()

    def _count_bytes(self) -> bool:
        return self.memory is None or self.memory.resize(self._held_bytes)

    @property
    def _held_bytes(self) -> int:
        entries = sum(entry.size_bytes for entry in self.entries)
        return self._chunk_bytes + self._taken_bytes + entries

    def release_taken(self) -> None:
        """Count a large entry no more whose messages are all taken: the application is done."""
        if self._taken_bytes and not self.messages:
            self._taken_bytes = 0
            self._count_bytes()

    async def decode_next(self) -> None:
        """Make messages of the entry that came first."""
        memory = self.memory
        assert memory is not None
        async with self._decoding:
            await memory.next_step()
            if self.messages or not self.entries:
                return
            entry = self.entries[0]
            was_open = entry.is_open
            self.release_taken()
            if not was_open and (more := entry.work_bytes(memory.copies)):
                await memory.reserve(self._held_bytes + more)
            try:
                has_more = await entry.decode_next(memory)
                taken = entry.size_bytes if entry.is_large and not has_more else 0
            except BadMessage as problem:
                has_more, taken = False, 0
                if not entry.is_dropped:
                    entry.owner.refuse_entry(entry, problem)
            if not has_more and not entry.is_dropped:
                self.entries.popleft()
                self._taken_bytes = taken
            if not has_more or not was_open or entry.is_dropped:
                self._count_bytes()

    def put(self, messages: Iterable[Message]) -> None:
        """Add messages and wake as many receivers."""
        before = len(self.messages)
        self.messages.extend(messages)
        self._wake(len(self.messages) - before)

    def drop(self, owner: MessageOwner) -> int:
        """Take out all messages and entries of one topic; how many permits they cost."""
        kept = [message for message in self.messages if message.owner is not owner]
        dropped = len(self.messages) - len(kept)
        if dropped:
            self.messages = deque(kept)
        for entry in self.entries:
            if entry.owner is owner:
                entry.is_dropped = True
                dropped += entry.permits
        self.entries = deque(each for each in self.entries if not each.is_dropped)
        self._count_bytes()
        return dropped

    def wake_all(self) -> None:
        """Something else happened that receivers must look at."""
        self._wake(len(self._waiting))

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def wait(self) -> None:
        """Wait for the next news."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # this waiter was woken and cancelled: wake another
            raise
