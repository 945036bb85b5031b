"""Offsets of partitions that other nodes serve, by a Kafka client in the principal's name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from trilogue.broker.names import format_kafka, is_kafka_name
from trilogue.broker.topics.topic import Topic
from trilogue.client.errors import ClientError
from trilogue.client.kafka.client import KafkaClient
from trilogue.client.kafka.errors import KafkaError
from trilogue.gateway.http.console.request import ConsoleRequest
from trilogue.gateway.http.request_limits import HttpError

CLIENT_ID: Final = "trilogue-console"
WAIT_S: Final = 5.0  # for the other nodes
EARLIEST, LATEST = -2, -1  # of ListOffsets; other times are ms since 1970

Place = tuple[Topic, int]  # a topic and the number of a partition


@asynccontextmanager
async def open_node_client(request: ConsoleRequest) -> AsyncIterator[KafkaClient]:
    """Open a client of all nodes for `WAIT_S`; HttpError 503 where one does not answer."""
    clients = request.services.make_node_clients()
    identity = clients.identify(request.http.scope)
    try:
        async with asyncio.timeout(WAIT_S), clients.make_kafka(identity, CLIENT_ID) as client:
            yield client
    except (ClientError, OSError, TimeoutError) as error:
        reason = str(error) or f"nothing within {WAIT_S:g} s"
        raise HttpError(503, f"other nodes do not answer: {reason}") from error


async def find_remote_offsets(
    request: ConsoleRequest, places: Iterable[Place], time_ms: int
) -> dict[tuple[str, int], int]:
    """Return offsets at a time, by topic and number; -1 where no message is that late.

    Raises HttpError 503 with the reason where a node does not answer or refuses.
    """
    names: dict[tuple[str, int], tuple[str, int]] = {}
    for topic, number in places:
        if not is_kafka_name(topic.name):
            raise HttpError(503, f"Kafka's protocol cannot name {topic.name} at another node")
        names[format_kafka(topic.name), number] = str(topic.name), number
    if not names:
        return {}
    async with open_node_client(request) as client:
        found = await client.admin.list_offsets(dict.fromkeys(names, time_ms))
    offsets: dict[tuple[str, int], int] = {}
    for place, result in found.items():
        if isinstance(result, KafkaError):
            raise HttpError(503, f"partition {place[1]} of {place[0]}: {result}")
        offsets[names[place]] = result.offset
    return offsets
