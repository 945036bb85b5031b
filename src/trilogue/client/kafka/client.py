"""The client: makes producers and consumers of one cluster, and administrates it.

async with KafkaClient("127.0.0.1:9092") as client:
print(await client.admin.list_topics())
"""

from __future__ import annotations

from typing import Any

from trilogue.client.closing import Closing
from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.options import ClientOptions


class KafkaClient(Closing):
    """What is known of a cluster, and its quick connections, shared by all that is made here.

    `servers` is `host:port`, several with commas. Options: see `ClientOptions`.
    """

    def __init__(self, servers: str, **options: Any) -> None:
        self.options = ClientOptions(**options)
        self._cluster = KafkaCluster(
            servers, client_id=self.options.client_id, timeout_s=self.options.request_timeout_s
        )
        self.admin = Admin(self._cluster)
        self._closed = False

    async def close(self) -> None:
        """Close the connections."""
        if self._closed:
            return
        self._closed = True
        await self._cluster.close()
