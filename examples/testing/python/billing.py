"""A service that reads orders from Kafka's topic `orders` and writes a bill for each to `bills`."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer


class Billing:
    """The service, with confluent-kafka."""

    def __init__(self, bootstrap: str, group: str = "billing") -> None:
        servers = {"bootstrap.servers": bootstrap}
        self._producer = Producer({**servers, "linger.ms": 0, "enable.idempotence": True})
        self._consumer = Consumer(
            {**servers, "group.id": group, "auto.offset.reset": "earliest",
             "enable.auto.commit": False}
        )  # fmt: skip
        self._consumer.subscribe(["orders"])

    def bill_next(self, wait_s: float = 10.0) -> bytes | None:
        """Bill one order, if one comes in time; return it. KafkaException if it was not written."""
        order = self._consumer.poll(wait_s)
        if order is None or order.error():
            return None
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        self._producer.produce("bills", b"bill of " + order.value(), on_delivery=delivered)
        self._producer.flush(wait_s)
        if failures:
            raise KafkaException(failures[0])
        self._consumer.commit(order, asynchronous=False)
        return order.value()

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
