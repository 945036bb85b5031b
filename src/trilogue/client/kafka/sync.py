"""The synchronous face: the same client on a loop in a thread of its own, for code without asyncio.

    with KafkaClient("127.0.0.1:9092") as client:
        print(client.admin.list_topics())

Every call may be made from any thread, but from no callback of a future: those run in the loop's
thread, which cannot wait for itself. Names, options and errors are those of the asyncio client.
"""

from __future__ import annotations

from typing import Any

from trilogue.client.kafka import client as asynchronous
from trilogue.client.kafka.errors import ClosedError
from trilogue.client.kafka.sync_admin import Admin
from trilogue.client.threads import ClientFace


class KafkaClient(ClientFace[asynchronous.KafkaClient]):
    """Producers and consumers of one cluster; options as in the asyncio client."""

    def __init__(self, servers: str, **options: Any) -> None:
        super().__init__(
            "trilogue-kafka", asynchronous.KafkaClient(servers, **options), ClosedError
        )
        self.admin = Admin(self._loop, self._inner.admin)
