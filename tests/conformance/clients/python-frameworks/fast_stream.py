"""FastStream doubles numbers: by aiokafka, or by confluent-kafka."""

import asyncio
import sys

from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker

library, address, source, target, count = sys.argv[1:]


async def main() -> None:
    broker = {"aiokafka": KafkaBroker, "confluent": ConfluentBroker}[library](address)
    doubled = []
    complete = asyncio.Event()

    @broker.subscriber(source, group_id="doubling", auto_offset_reset="earliest")
    @broker.publisher(target)
    async def double(number: int) -> int:
        doubled.append(number)
        if len(doubled) == int(count):
            complete.set()
        return number * 2

    await broker.start()
    for number in range(int(count)):
        await broker.publish(number, source, key=b"%d" % number)
    await asyncio.wait_for(complete.wait(), 60)
    await asyncio.sleep(1)  # the last publication
    await broker.stop()


asyncio.run(main())
