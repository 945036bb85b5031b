"""Servers under load of their own clients in Java: started, warmed up and measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks import report
from benchmarks.drivers import Moment, Result, nothing, run_java
from benchmarks.gates import Figures
from benchmarks.measure import settle
from benchmarks.rows import metered
from benchmarks.servers import Contender

RequestedLoad = TypeVar("RequestedLoad", bound=Contender)


@dataclass
class Stage(Generic[RequestedLoad]):
    """What a leg runs on: `driver` is the program, `class_path` its classes and the client's."""

    driver: str
    class_path: list[object]
    servers: list[RequestedLoad]
    seconds: float
    warmup: float

    def settle(self) -> None:
        settle([server.pid for server in self.servers])

    def drive(
        self,
        mode: str,
        server: RequestedLoad,
        topic: str,
        *,
        begin: Moment = nothing,
        end: Moment = nothing,
        **options: float,
    ) -> Result:
        words = [mode, server.address, topic]
        return run_java(self.class_path, self.driver, words, begin=begin, end=end, options=options)

    def measured(
        self, mode: str, server: RequestedLoad, topic: str, options: dict[str, float]
    ) -> Figures:
        """Drive, and read the server's counters around it."""
        options = {**options, "seconds": self.seconds, "warmup": self.warmup}

        def drive(begin: Moment, end: Moment) -> Result:
            return self.drive(mode, server, topic, begin=begin, end=end, **options)

        return metered(self, server, drive, "message")

    def warm(self, loads: Sequence[dict[str, float]], seconds: float) -> None:
        """Let compilers and caches come to rest, on all servers alike."""
        for server in self.servers:
            for options in loads:
                self.drive(
                    "produce", server, "warm", **options, warmup=0.0, seconds=seconds / len(loads)
                )

    def in_turn(self, leg: Callable[[RequestedLoad, int], Figures], rounds: int) -> report.Legs:
        """Measure all servers in each round, in alternating order."""
        legs: report.Legs = {server.name: [] for server in self.servers}
        for number in range(rounds):
            for server in self.servers if number % 2 == 0 else self.servers[::-1]:
                legs[server.name].append(leg(server, number))
        return legs
