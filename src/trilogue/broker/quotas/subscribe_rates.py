"""How often a consumer may subscribe to a partition: a policy of a namespace or a topic."""

from __future__ import annotations

from typing import Final, NamedTuple

from trilogue.broker.quotas.topic_rates import Rate

CONSUMERS_MAX: Final = 10_000  # that are remembered; the oldest are forgotten first


class ConsumerKey(NamedTuple):
    """One consumer, also after it has lost its connection or its client was started again."""

    topic: str  # or partition, as the client spells it
    host: str
    name: str
    consumer_id: int  # a client numbers its consumers from 0


class SubscribeRates:
    """The subscribes of consumers within the present period of each. Times are seconds."""

    def __init__(self) -> None:
        self._counts: dict[ConsumerKey, tuple[float, int]] = {}  # when it began, and how many

    def try_subscribe(self, consumer: ConsumerKey, rate: Rate, now_s: float) -> bool:
        """Count one subscribe; return whether the rate allows it."""
        began_s, count = self._counts.pop(consumer, (now_s, 0))
        if now_s - began_s >= rate.period_s:
            began_s, count = now_s, 0
        allowed = count < rate.messages
        self._counts[consumer] = began_s, count + allowed
        if len(self._counts) > CONSUMERS_MAX:
            del self._counts[next(iter(self._counts))]
        return allowed
