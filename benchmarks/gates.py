"""Figures of a measurement, and the gates that they must pass.

A leg (one row on one server, once) gives a flat dictionary of figures; a gate sees the medians of
all servers of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

KAFKA, KAFKA_DEFAULT, TRILOGUE = "kafka", "kafka-default", "trilogue"

Figures = dict[str, float]
Medians = Mapping[str, Figures]  # server -> its figures

CPU_PER_REQUEST = "cpu_us_per_request_settled"
CPU_PER_MESSAGE = "cpu_us_per_message_settled"


@dataclass(frozen=True)
class Gate:
    """A figure of ours that must not be missed, alone or beside that of another server."""

    label: str
    value: Callable[[Medians], float]
    wanted: float
    at_least: bool
    beside: str = ""

    def passed(self, got: float) -> bool:
        return got >= self.wanted if self.at_least else got <= self.wanted

    def can_be_judged(self, servers: Container[str]) -> bool:
        """Whether those ran whose figures it wants."""
        return TRILOGUE in servers and (not self.beside or self.beside in servers)


def ratio(key: str, to: str) -> Callable[[Medians], float]:
    """Ours as a share of another server's."""
    return lambda medians: medians[TRILOGUE][key] / medians[to][key]


def our(key: str) -> Callable[[Medians], float]:
    return lambda medians: medians[TRILOGUE][key]


def at_least(label: str, key: str, times: float, to: str) -> Gate:
    """So many times the other server's figure, or more."""
    return Gate(label, ratio(key, to), times, at_least=True, beside=to)


def at_most(label: str, key: str, times: float, to: str) -> Gate:
    """So many times the other server's figure, or less."""
    return Gate(label, ratio(key, to), times, at_least=False, beside=to)


def within(label: str, key: str, floor: str, more: float) -> Gate:
    """Our figure above another one of ours, such as what the disk needs by itself."""

    def difference(medians: Medians) -> float:
        return medians[TRILOGUE][key] - medians[TRILOGUE][floor]

    return Gate(label, difference, more, at_least=False)


def below(label: str, key: str, limit: float) -> Gate:
    """Our figure alone."""
    return Gate(label, our(key), limit, at_least=False)
