"""Moves slots between nodes while they serve, by starting the nodes concerned again.

```
 flush while serving ──► stop, flush the rest ──► new owners in meta ──► start
   all nodes concerned       clients wait from here          ... to here
```

Between the two a slot has no process, and its journal is in segments: the next owner finds
everything there and in meta, as after any start (docs/decisions/0082-moves-of-slots.md). Nodes that
neither give nor get a slot go on, and follow the change.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from trilogue.node.supervisor.control import ControlRequest
from trilogue.node.supervisor.node_process import NodeProcess

log = logging.getLogger(__name__)

FLUSH_LIMIT_S: Final = 60.0  # of the flush while serving; what is left then is flushed at the stop


class MoveStep(Enum):
    """What a move waits for."""

    FLUSH = auto()  # the nodes concerned flush while they serve
    STOP = auto()  # they end
    START = auto()  # they are ready again


class SlotMove:
    """One request: its slots, the nodes concerned, how far it is."""

    def __init__(
        self,
        request: ControlRequest,
        owners: Sequence[int],
        wanted: Mapping[int, int],
        nodes: Mapping[int, NodeProcess],
        stop_limit_s: float,
    ) -> None:
        """`owners` are the present ones by slot, `wanted` those of the slots that move."""
        self.owners = [wanted.get(slot, owner) for slot, owner in enumerate(owners)]
        self.sources = {owners[slot] for slot in wanted}
        self.nodes = {each: nodes[each] for each in {*self.sources, *wanted.values()}}
        self.step = MoveStep.FLUSH
        self.error = ""
        self._request = request
        self._wanted = wanted
        self._stop_limit_s = stop_limit_s
        self._ends = time.monotonic() + FLUSH_LIMIT_S
        self._stopped_s = 0.0
        for node in self.nodes.values():
            node.flushed = node.drained = False
            node.send_signal(signal.SIGUSR1)
        log.info("slots.moving", extra={"slots": len(wanted), "nodes": sorted(self.nodes)})

    def holds(self, node: NodeProcess) -> bool:
        """Whether a node that has ended is not to be started yet."""
        return self.step is MoveStep.STOP and node in self.nodes.values()

    def advance(self) -> bool:
        """Take the next step if its time has come; return whether owners can be recorded now."""
        now, nodes = time.monotonic(), self.nodes.values()
        if self.step is MoveStep.FLUSH:
            if all(node.flushed or not node.runs for node in nodes) or now > self._ends:
                self.step = MoveStep.STOP
                self._stopped_s, self._ends = now, now + self._stop_limit_s
                for node in nodes:
                    node.send_signal(signal.SIGTERM)
        elif self.step is MoveStep.STOP:
            if not any(node.runs for node in nodes):
                return True
            if now > self._ends:
                for node in nodes:
                    node.send_signal(signal.SIGKILL)
        return False

    @property
    def flushed(self) -> set[int]:
        """The former owners whose journals are in segments for sure."""
        return {each for each in self.sources if self.nodes[each].drained}

    def begin_start(self, error: str = "") -> None:
        """Note that the owners are recorded, or why they are not: the nodes start now."""
        self.step, self.error = MoveStep.START, error

    def finish(self) -> bool:
        """Respond when all nodes concerned are ready; return whether they are."""
        if self.step is not MoveStep.START or not all(n.is_ready for n in self.nodes.values()):
            return False
        seconds = round(time.monotonic() - self._stopped_s, 3)
        if self.error:
            log.error("slots.not_moved", extra={"reason": self.error, "took_s": seconds})
            self._request.respond(error=self.error)
        else:
            log.info("slots.moved", extra={"slots": len(self._wanted), "took_s": seconds})
            self._request.respond(slots=self._wanted, seconds=seconds)
        return True

    def forget(self) -> None:
        """Close the connection in a forked node."""
        self._request.forget()

    def abandon(self) -> None:
        """Respond that the supervisor ends."""
        self._request.respond(error="the server stops")
