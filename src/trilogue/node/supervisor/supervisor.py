"""Runs the nodes of one machine: starts them, starts one again that ended, moves slots, stops all.

```
 lock the directory ──► owners of the slots ──► fork the nodes ──► all ready: the ready file
                                                    ▲    │
                            started again, its slots │    │ ended, or silent for `nodes.silence`
                            with the next epoch      └────┘ and killed
```

A node's journal is opened by one process at a time: its next process starts when the kernel has
reported the end of the former one, so a stopped process that wakes cannot acknowledge anything.
The supervisor has no threads and no event loop, since it forks.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import selectors
import signal
import sqlite3
import sys
import time
from functools import partial
from pathlib import Path

from trilogue.broker.settings.values import Value
from trilogue.log.directory import DataDirectory
from trilogue.log.errors import LogError
from trilogue.log.files import OsFileSystem
from trilogue.node.errors import WRONG_SETTING, ControlError, StartError
from trilogue.node.logs import start_logging
from trilogue.node.process import (
    ReadSettings,
    Terminal,
    WriteLine,
    log_config_file,
    raise_descriptor_limit,
    ready_file,
    run,
)
from trilogue.node.settings.reload import keep_fixed, list_fixed, log_reload, read_sources
from trilogue.node.settings.table import ALL_LISTENERS, Settings
from trilogue.node.storage import NodePlace, start_errors
from trilogue.node.supervisor.control import ControlRequest, ControlSocket
from trilogue.node.supervisor.node_process import NodeLink, NodeProcess
from trilogue.node.supervisor.node_settings import check_ports, node_settings
from trilogue.node.supervisor.slot_moves import SlotMove
from trilogue.node.supervisor.slot_plans import parse_move
from trilogue.node.supervisor.slots import assign_slots, move_slots, owners_of_slots, plan_slots

log = logging.getLogger(__name__)

LOOK_S = 0.1
START_LIMIT_S = 600.0  # a recovery reads a journal of up to some GiB
RESTART_WAITS_S = (0.0, 0.2, 1.0, 5.0)  # after an end within STABLE_S, one after the other
STABLE_S = 10.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(
    settings: Settings, *, write_line: WriteLine, read_settings: ReadSettings | None = None
) -> int:
    """Serve by several nodes until a signal; return the exit code. StartError as for one node.

    Also serves by one node where several did before. `read_settings` reads the settings again at
    SIGHUP.
    """
    start_logging(level=settings.text("log.level"), form=settings.text("log.format"))
    raise_descriptor_limit()
    nodes = settings.number("nodes")
    if settings.text("objects.url") and nodes > 1:
        raise StartError("objects.url is served by one node only: set nodes=1", WRONG_SETTING)
    own = {node_id: node_settings(settings, node_id) for node_id in range(1, nodes + 1)}
    check_ports(own)
    path = Path(settings.text("data"))
    with start_errors(path):
        directory = DataDirectory.open(OsFileSystem(), path)
        try:
            places = _prepare(settings, path)
            if nodes == 1:
                directory.close()
                return run(settings, write_line=write_line, read_settings=read_settings)
            log_config_file(settings)
            supervisor = Supervisor(settings, own, places, directory, write_line)
            supervisor.read_settings = read_settings
            return supervisor.run()
        finally:
            directory.close()


def _prepare(settings: Settings, path: Path) -> dict[int, NodePlace]:
    """Make the nodes of now the owners of the slots; return the place of each."""
    nodes = settings.number("nodes")
    slots = max(settings.number("cluster.slots"), nodes)
    plan = plan_slots(path, nodes, slots)
    if len(plan.owners) < nodes:
        raise StartError(
            f"{path} has {len(plan.owners)} slots for ever: at most as many nodes serve it",
            WRONG_SETTING,
        )
    for node_id in plan.former_owners:
        _flush_journal(settings, NodePlace(node_id, is_shared=True, orphans_below=0))
    assign_slots(path, plan.owners)
    return {
        node_id: NodePlace(node_id, is_shared=True, orphans_below=plan.orphans_below)
        for node_id in range(1, nodes + 1)
    }


def _flush_journal(settings: Settings, place: NodePlace) -> None:
    """Bring the journal of a node into segments, in a process of its own; StartError."""
    closed = settings.replaced(
        {"ready-file": None, **{f"listen.{name}": "off" for name in ALL_LISTENERS}}, "flush"
    )
    node = NodeProcess(place, partial(_flush_and_end, closed))
    node.start()
    if (code := node.reap()) != 0:
        raise StartError(f"the journal of node {place.node_id} could not be flushed", code)


def _flush_and_end(settings: Settings, link: NodeLink) -> int:
    from trilogue.node.node import Node

    async def flush() -> None:
        node = Node(settings, place=link.place)
        await node.start()
        await node.drain(asyncio.Event(), START_LIMIT_S)
        await node.close()

    asyncio.run(flush())
    return 0


class Supervisor:
    """The nodes of one directory, and the loop that watches them."""

    def __init__(
        self,
        settings: Settings,
        own: dict[int, Settings],
        places: dict[int, NodePlace],
        directory: DataDirectory,
        write_line: WriteLine,
    ) -> None:
        self._settings = settings
        self._write_line = write_line
        self._directory = directory
        self._silence_s = settings.seconds("nodes.silence")
        self._stop_limit_s = settings.seconds("shutdown.limit")
        self._selector = selectors.DefaultSelector()
        self.read_settings: ReadSettings | None = None
        self._signals = 0  # stop signals received
        self._reloads = False  # since SIGHUP
        self._terminal = Terminal()
        self._failures: dict[int, int] = {}
        self._due: dict[int, float] = {}  # when a node that ended is started again
        self._own = own
        self._looked = time.monotonic()
        self._control: ControlSocket | None = None
        self._move: SlotMove | None = None
        self._nodes = {node_id: NodeProcess(places[node_id], self._run_node) for node_id in own}

    def run(self) -> int:
        """Start all nodes and watch them until a stop signal."""
        import trilogue.node.node  # noqa: F401 - once, for all nodes

        gc.freeze()
        self._catch_signals()
        for node in self._nodes.values():
            self._start(node)
        try:
            code = self._wait_until_ready()
            if code:
                return code
            self._take_listeners()
            self._control = ControlSocket(self._directory.path / "nodes")
            self._selector.register(self._control, selectors.EVENT_READ, self._control)
            with ready_file(self._settings.text("ready-file"), self._nodes[1].listeners):
                while not self._signals:
                    self._look()
        finally:
            if self._move is not None:
                self._move.abandon()
            self._stop()
            if self._control is not None:
                self._control.close()
        log.info("supervisor.stopped")
        return 0

    def _run_node(self, link: NodeLink) -> int:
        settings = self._own[link.place.node_id]
        self._selector.close()
        if self._control is not None:
            self._control.forget()
        if self._move is not None:
            self._move.forget()
        self._directory.close()  # the lock stays with the supervisor
        try:
            return run(
                settings,
                write_line=lambda _line: None,
                supervision=link,
                read_settings=partial(self._read_own, link.place.node_id),
            )
        except StartError as error:
            sys.stderr.write(f"trilogue: node {link.place.node_id}: {error}\n")
            return error.code

    def _start(self, node: NodeProcess) -> None:
        node.start()
        self._selector.register(node.pipe, selectors.EVENT_READ, node)
        log.info("node.started", extra={"node": node.place.node_id, "pid": node.pid})

    def _wait_until_ready(self) -> int:
        """Wait for all nodes; return the exit code of one that cannot start."""
        while not self._signals and not all(node.is_ready for node in self._nodes.values()):
            for node in self._select():
                return self._end(node) or 1
        return 0

    def _take_listeners(self) -> None:
        """Print the addresses; a node that is started again has the same ones."""
        for node_id, node in self._nodes.items():
            listeners: dict[str, Value] = {
                f"listen.{name}": text for name, text in node.listeners.items()
            }
            self._own[node_id] = self._own[node_id].replaced(listeners, f"node {node_id}")
            for listener, address in node.listeners.items():
                self._write_line(f"node {node_id} {listener:13} {address}")

    def _look(self) -> None:
        """Wait for a moment; start nodes again that ended, kill those that are silent."""
        for node in self._select():
            self._restart_later(node)
        if self._reloads:
            self._reloads = False
            self._reload()
        if self._move is not None:
            self._advance(self._move)
        now = time.monotonic()
        was_stopped, self._looked = now - self._looked > self._silence_s / 2, now
        for node_id, node in self._nodes.items():
            if was_stopped:  # this process was: what nodes wrote meanwhile is not read yet
                node.heard = now
            is_held = self._move is not None and self._move.holds(node)
            if not node.runs and not is_held and now >= self._due[node_id]:
                self._start(node)
            silent_s = now - node.heard
            if node.runs and self._is_hung(node, silent_s):
                log.error("node.silent", extra={"node": node_id, "silent_s": round(silent_s, 1)})
                node.send_signal(signal.SIGKILL)
                node.heard = now  # its pipe closes with it

    def _is_hung(self, node: NodeProcess, silent_s: float) -> bool:
        """Whether to kill a node; one that starts reads its journal, unless it is stopped."""
        if silent_s <= self._silence_s:
            return False
        return node.is_ready or node.is_stopped or silent_s > START_LIMIT_S

    def _restart_later(self, node: NodeProcess) -> None:
        node_id, lasted_s = node.place.node_id, time.monotonic() - node.began
        code = self._end(node)
        failures = self._failures[node_id] = (
            0 if lasted_s > STABLE_S else self._failures.get(node_id, -1) + 1
        )
        wait_s = RESTART_WAITS_S[min(failures, len(RESTART_WAITS_S) - 1)]
        if self._move is not None and self._move.holds(node) and not code:
            self._failures[node_id], wait_s = -1, 0.0
        self._due[node_id] = time.monotonic() + wait_s
        level = logging.ERROR if code else logging.INFO
        log.log(level, "node.ended", extra={"node": node_id, "code": code, "again_in_s": wait_s})

    # -- settings

    def _read_own(self, node_id: int) -> Settings:
        """Read the settings of a node again; SettingsError, StartError."""
        assert self.read_settings is not None
        return node_settings(self.read_settings(), node_id)

    def _reload(self) -> None:
        """Read the settings again, for this process and nodes that start; those that serve too."""
        wanted = None if self.read_settings is None else read_sources(self.read_settings)
        if wanted is None:
            return
        self._settings, applied = keep_fixed(self._settings, wanted)
        for node_id, own in self._own.items():
            self._own[node_id] = own.taken_from(wanted, applied)
        self._stop_limit_s = self._settings.seconds("shutdown.limit")
        start_logging(
            level=self._settings.text("log.level"), form=self._settings.text("log.format")
        )
        log_reload(applied, list_fixed(self._settings, wanted))
        for node in self._nodes.values():
            if node.is_ready:
                node.send_signal(signal.SIGHUP)

    # -- moves of slots

    def _accept_request(self, request: ControlRequest | None) -> None:
        """Begin the move that a program asks for, or refuse it."""
        if request is None:
            return
        try:
            if self._signals:
                raise ControlError("the server stops")
            if self._move is not None:
                raise ControlError("slots are being moved already")
            if not all(node.is_ready for node in self._nodes.values()):
                raise ControlError("not all nodes serve now: try again")
            owners = owners_of_slots(self._directory.path)
            wanted = parse_move(request.content, owners, list(self._nodes))
        except (ControlError, sqlite3.Error) as error:
            request.respond(error=str(error))
            return
        if not wanted:
            request.respond(slots={}, seconds=0.0)
            return
        limit_s = self._stop_limit_s + STABLE_S
        self._move = SlotMove(request, owners, wanted, self._nodes, limit_s)

    def _advance(self, move: SlotMove) -> None:
        if move.advance():
            try:
                for node_id in move.sources - move.flushed:
                    _flush_journal(self._own[node_id], self._nodes[node_id].place)
                move_slots(self._directory.path, move.owners, min(move.sources))
            except (StartError, LogError, OSError) as error:
                move.begin_start(f"the new owners are not recorded: {error}")
            else:
                move.begin_start()
        if move.finish():
            self._move = None

    def _select(self) -> list[NodeProcess]:
        """Read what nodes and signals wrote; return the nodes that have ended."""
        ended = []
        for key, _ in self._selector.select(LOOK_S):
            if key.data is None:
                os.read(key.fd, 64)
            elif isinstance(key.data, ControlSocket):
                self._accept_request(key.data.accept())
            elif not key.data.read():
                ended.append(key.data)
        return ended

    def _end(self, node: NodeProcess) -> int:
        self._selector.unregister(node.pipe)
        return node.reap()

    def _catch_signals(self) -> None:
        wakes, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wake)
        self._selector.register(wakes, selectors.EVENT_READ, None)
        for number in SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._receive)

    def _receive(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP and not self._terminal.has_closed:
            self._reloads = True
            return
        self._signals += 1
        log.info("supervisor.signal", extra={"signal": signal.Signals(number).name})

    def _stop(self) -> None:
        """Let all nodes drain; a second signal makes them hurry, and none outlives the limit."""
        sent = 0
        ends = time.monotonic() + self._stop_limit_s + 2 * STABLE_S
        while any(node.runs for node in self._nodes.values()):
            if sent < max(1, self._signals) and sent < 2:
                sent += 1
                for node in self._nodes.values():
                    node.send_signal(signal.SIGTERM)
            if time.monotonic() > ends:
                for node in self._nodes.values():
                    node.send_signal(signal.SIGKILL)
            for node in self._select():
                self._end(node)
