"""How long the partitions of a node are away after its kill, and after its drain.

    python -m benchmarks.failover [--rounds 3] [--lease 3s] [--spread-after 0s] [--unflushed 64]

Three nodes with `ack=shared` over a PostgreSQL server of its own, and objects in a folder. A
producer of librdkafka sends to each partition, one message at a time; a pause is the longest time
between two acknowledgements of a partition. With `--unflushed` the last node has so many MiB that
are acknowledged and in no segment when it ends.

Prints one JSON object: seconds, sorted, of all partitions (a third of them were with the node that
was killed or drained; each round is one cluster); the median and the highest of those that were;
the MiB of windows that this node had in PostgreSQL; and the log events of the last round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.node.cluster.shared_cluster import SharedCluster
from tests.node.supervisor.test_nodes import QUIET, create
from tests.postgres import PostgresServer, require_postgres
from tests.server import Server, run_trilogue
from tests.waiting import wait_until

SIZE = 3
PARTITIONS = 6
TOPIC = "failover"
BEFORE_S = 10.0  # also for the process of a recovery to be ready
LIMIT_S = 120.0
MIB = 1 << 20
FILL_SIZE = 64 << 10
PHASES = ("slots.", "node.again", "lease.", "storage.opened")


class PartitionSender(threading.Thread):
    """Sends to a partition, one message at a time, and notes when each was acknowledged."""

    def __init__(self, servers: str, partition: int) -> None:
        super().__init__(daemon=True)
        self.acked_s: list[float] = []
        self.stopped = threading.Event()
        self._partition = partition
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 0,
                "enable.idempotence": True,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
            }
        )

    def run(self) -> None:
        """Send until `stopped`."""
        while not self.stopped.is_set():
            self._producer.produce(
                TOPIC, b"x", partition=self._partition, on_delivery=self._delivered
            )
            self._producer.flush(LIMIT_S)
            self.stopped.wait(0.02)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acked_s.append(time.monotonic())

    def has_acked_after(self, moment_s: float) -> bool:
        """Whether something was acknowledged after a moment."""
        return bool(self.acked_s) and self.acked_s[-1] > moment_s

    def pause_s(self, since_s: float) -> float:
        """Return the longest time between two acknowledgements that ends after a moment."""
        acked_s = list(self.acked_s)
        pairs = itertools.pairwise(acked_s)
        return max((later - former for former, later in pairs if later > since_s), default=LIMIT_S)

    def resumed_s(self, since_s: float) -> float:
        """Return when that pause ended."""
        pairs = itertools.pairwise(list(self.acked_s))
        ended = ((later - former, later) for former, later in pairs if later > since_s)
        return max(ended, default=(0.0, since_s))[1]


def owners(cluster: SharedCluster) -> set[int]:
    """Return the nodes that own slots."""
    rows = cluster.postgres.run("SELECT DISTINCT node_id FROM trilogue.slots", cluster.url)
    return {int(row[0]) for row in rows}


def wait_until_moved(cluster: SharedCluster, node_id: int, senders: list[PartitionSender]) -> None:
    """Return when a node has no slots, and each partition has been written to since."""
    wait_until(lambda: node_id not in owners(cluster), "owners of slots", LIMIT_S, every=0.1)
    time.sleep(2.0)  # a node that gives slots starts again
    wait_until_served(senders, time.monotonic())


def wait_until_served(senders: list[PartitionSender], moment_s: float) -> None:
    """Return when each partition has been written to after a moment."""
    wait_until(
        lambda: all(each.has_acked_after(moment_s) for each in senders),
        "acknowledgements of each partition",
        LIMIT_S,
        every=0.05,
    )


def unflushed_settings(mib: int) -> dict[str, object]:
    """Return what keeps a journal file open until it has twice as many MiB."""
    if not mib:
        return {}
    return {
        "journal__file_size": f"{2 * mib}MiB",
        "journal__file_entries": 10_000_000,
        "journal__file_age": "1h",
        "tail__limit": f"{4 * mib}MiB",
        "tail__entries": 10_000_000,
    }


def partitions_of(servers: str, node_id: int) -> list[int]:
    """Return the partitions that a node serves."""
    topic = AdminClient({"bootstrap.servers": servers, **QUIET}).list_topics(TOPIC).topics[TOPIC]
    return [number for number, each in topic.partitions.items() if each.leader == node_id]


def fill(servers: str, partitions: list[int], mib: int) -> None:
    """Send so many MiB to some partitions; return when all are acknowledged."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    for number in range(mib * MIB // FILL_SIZE):
        place = partitions[number % len(partitions)]
        producer.produce(TOPIC, random.randbytes(FILL_SIZE), partition=place)
        if number % 64 == 0:
            producer.flush(LIMIT_S)
    if producer.flush(LIMIT_S):
        raise RuntimeError("not all messages were acknowledged")


def stored_mib(cluster: SharedCluster, node_id: int) -> float:
    """Return how many MiB of windows of a node PostgreSQL has."""
    names = cluster.postgres.run(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'trilogue' "
        f"AND tablename LIKE 'windows\\_{node_id}\\_%'",
        cluster.url,
    )
    sizes = [
        cluster.postgres.run(f"SELECT sum(length(data)) FROM trilogue.{name}", cluster.url)
        for (name,) in names
    ]
    return round(sum(int(found[0][0] or 0) for found in sizes) / MIB, 1)


class Round(NamedTuple):
    """What one cluster showed; `own_s` are the pauses of the partitions of the node that ended."""

    pauses_s: list[float]
    own_s: list[float]
    unflushed_mib: float
    began: str
    ends: list[str]


def play(cluster: SharedCluster, nodes: list[Server], what: str, unflushed: int) -> Round:
    """Kill or drain the last node; return the pauses of all partitions, when, and when they end."""
    create(nodes[0], TOPIC, PARTITIONS)
    servers = ",".join(node.kafka for node in nodes)
    senders = [PartitionSender(servers, each) for each in range(PARTITIONS)]
    for each in senders:
        each.start()
    wait_until_served(senders, 0.0)
    time.sleep(BEFORE_S)
    own = partitions_of(servers, SIZE)
    if unflushed:
        fill(servers, own, unflushed)
    mib = stored_mib(cluster, SIZE)
    began_s, began = time.monotonic(), datetime.now(UTC)
    if what == "kill":
        nodes[-1].kill9()
    else:
        done = run_trilogue("nodes", "drain", str(SIZE), "--cluster", cluster.url, timeout=LIMIT_S)
        if done.returncode:
            raise RuntimeError(done.stderr)
    wait_until_moved(cluster, SIZE, senders)
    for each in senders:
        each.stopped.set()
    for each in senders:
        each.join()
    pauses_s = sorted(
        (round(each.pause_s(began_s), 2), each.resumed_s(began_s)) for each in senders
    )
    ends = [clock(began + timedelta(seconds=end_s - began_s)) for _, end_s in pauses_s]
    own_s = [round(senders[each].pause_s(began_s), 2) for each in own]
    return Round([pause_s for pause_s, _ in pauses_s], own_s, mib, clock(began), ends)


def clock(moment: datetime) -> str:
    """Return a moment as log lines have it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def phases(nodes: list[Server]) -> list[str]:
    """Return the lines of all nodes that tell of slots, starts and leases."""
    lines = [line for node in nodes for line in node.output.splitlines()]
    return [line for line in lines if any(each in line for each in PHASES)]


def main() -> None:
    """Play the rounds, and print the pauses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lease", default="3s")
    parser.add_argument("--spread-after", default="0s")
    parser.add_argument("--unflushed", type=int, default=0, metavar="MIB")
    parser.add_argument("--of", choices=("kill", "drain"), action="append")
    given = parser.parse_args()
    found: dict[str, list[Round]] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "postgres").mkdir()
        postgres = PostgresServer(require_postgres(), home / "postgres")
        postgres.initialize()
        postgres.start()
        try:
            for number in range(given.rounds):
                for what in given.of or ("kill", "drain"):
                    place = home / f"{what}-{number}"
                    place.mkdir()
                    cluster = SharedCluster(place, postgres, SIZE)
                    settings = {
                        "cluster__lease": given.lease,
                        "cluster__spread_after": given.spread_after,
                        **unflushed_settings(given.unflushed),
                    }
                    try:
                        nodes = [
                            cluster.launch(each, f"node-{each}", **settings)
                            for each in range(1, SIZE + 1)
                        ]
                        for node in nodes:
                            node.wait_ready(LIMIT_S)
                        played = play(cluster, nodes, what, given.unflushed)
                        found.setdefault(what, []).append(played)
                        events = [f"{played.began} {what}", *phases(nodes)]
                        events.append(f"{' '.join(played.ends)} pauses end")
                    except BaseException:
                        print(*(node.output for node in nodes), sep="\n")
                        raise
                    finally:
                        cluster.kill_all()
        finally:
            postgres.stop()
    print(json.dumps({**summarize(found), "events": events}, indent=1))


def summarize(found: dict[str, list[Round]]) -> dict[str, object]:
    """Return the pauses of each kind, and those of the partitions that had to move."""
    own_s = {what: [s for each in rounds for s in each.own_s] for what, rounds in found.items()}
    return {
        "pauses_s": {what: [each.pauses_s for each in rounds] for what, rounds in found.items()},
        "moved": {
            what: {"partitions": len(all_s), "p50_s": statistics.median(all_s), "max_s": max(all_s)}
            for what, all_s in own_s.items()
        },
        "unflushed_mib": {
            what: [each.unflushed_mib for each in rounds] for what, rounds in found.items()
        },
    }


if __name__ == "__main__":
    main()
