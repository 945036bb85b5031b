"""A client that produces as fast as it can, in a process of its own. Prints what became of it.

python -m tests.conformance.greedy ADDRESS TOPIC CLIENT_ID SECONDS
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import KafkaError, Producer


def main() -> None:
    address, topic, client_id, seconds = sys.argv[1:]
    waits_ms: list[int] = []
    problems: list[str] = []
    sent = 0

    def acked(error: KafkaError | None, _message: object) -> None:
        nonlocal sent
        if error is not None:
            problems.append(error.name())
        else:
            sent += 1

    producer = Producer(
        {
            "bootstrap.servers": address,
            "client.id": client_id,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 4096,
            "throttle_cb": lambda event: waits_ms.append(round(event.throttle_time * 1000)),
            "error_cb": lambda error: problems.append(error.name()),
        }
    )
    producer.list_topics(topic, 10)
    print("ready", flush=True)
    began = time.monotonic()
    ends = began + float(seconds)
    value = bytes(1_000)
    while time.monotonic() < ends:
        try:
            producer.produce(topic, value, on_delivery=acked)
        except BufferError:
            producer.poll(0.01)
    producer.purge(in_flight=False)
    producer.flush(5)
    lost = [each for each in problems if each != "_PURGE_QUEUE"]
    summary = {"sent": sent, "seconds": time.monotonic() - began, "waits_ms": waits_ms}
    print(json.dumps({**summary, "problems": lost}), flush=True)


if __name__ == "__main__":
    main()
