"""Share groups (KIP-932) of Trilogue beside a real Kafka, with Kafka's own share consumers.

    python -m benchmarks.share [--rounds 2] [--messages 200000] [--ours] [--no-save]

Four members of one share group in Java take and acknowledge what a topic of four partitions holds;
both servers run all the time and are measured in turn. What a Shared subscription of Pulsar takes
for the same is the row pulsar-shared-100B of `benchmarks.run`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tools.servers.java import jars
from tools.servers.kafka import have_jars

from benchmarks import report
from benchmarks.drivers import BUILD, compile_java
from benchmarks.gates import CPU_PER_MESSAGE, KAFKA, TRILOGUE, Figures, at_least, at_most
from benchmarks.java import Stage
from benchmarks.servers import Contender, Kafka, Trilogue, create_topic

VERSION = "4.3.1"
DRIVER = "ShareLoad"
PARTITIONS = 4
ONE_NODE = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
QUESTION = "Four share consumers take stored messages of 100 B; acknowledged by the next poll."
GATES = (
    at_least("Kafka's messages/s", "messages_per_s", 1.0, KAFKA),
    at_most("its CPU/message", CPU_PER_MESSAGE, 1.0, KAFKA),
)


def make(name: str, root: Path) -> Contender:
    """A server that is not started."""
    root.mkdir(parents=True)
    if name == TRILOGUE:
        return Trilogue(root)
    return Kafka(root, name, VERSION, settings=ONE_NODE)


def measure(servers: list[Contender], rounds: int, messages: int) -> dict[str, object]:
    """The first leg of each server warms it and is not counted."""
    client = f"{jars(VERSION)}/*"
    path: list[object] = [compile_java(DRIVER, BUILD, client), client]
    stage: Stage[Contender] = Stage(DRIVER, path, servers, 0.0, 0.0)
    options = {"messages": messages, "size": 100, "consumers": 4}

    def leg(server: Contender, number: int) -> Figures:
        topic = f"share-{number}"
        create_topic(server.address, topic, PARTITIONS)
        return stage.measured("share", server, topic, options)

    legs = stage.in_turn(leg, rounds + 1)
    kept = {name: found[1:] for name, found in legs.items()}
    return report.summarise("share-group-100B", QUESTION, kept, GATES)


def main() -> int:
    parser = argparse.ArgumentParser(description="share groups beside a real Kafka")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--ours", action="store_true", help="only Trilogue; not saved")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--directory", type=Path, default=BUILD / "share")
    chosen = parser.parse_args()
    if not have_jars(VERSION):
        print(f"no Kafka {VERSION}: run `make jars`", file=sys.stderr)
        return 2
    root = chosen.directory.absolute()
    shutil.rmtree(root, ignore_errors=True)
    names = [TRILOGUE] if chosen.ours else [KAFKA, TRILOGUE]
    servers = [make(name, root / name) for name in names]
    try:
        for server in servers:
            server.start()
        row = measure(servers, chosen.rounds, chosen.messages)
    finally:
        for server in servers:
            server.kill9()
    print(report.table([row]))
    if not (chosen.no_save or chosen.ours):
        path = report.save_rows(root, {"kafka": VERSION}, chosen.rounds, [row])
        print(f"written to {path}")
    shutil.rmtree(root, ignore_errors=True)
    return 1 if any(not gate["passed"] for gate in row["gates"]) else 0


if __name__ == "__main__":
    sys.exit(main())
