"""Run the suites of Kafka's own clients on Trilogue or on a real Kafka, test by test.

    git clone https://github.com/aio-libs/aiokafka DIR            # and so on
    python -m tools.kafka_suites aiokafka DIR --server trilogue --out ours.json
    python -m tools.kafka_suites aiokafka DIR --server 3.9.1 --out real.json
    python -m tools.kafka_suites report --ours ours.json --real real.json

Suites: `aiokafka` (aio-libs), `kafka-python` (dpkp), `confluent` (confluent-kafka-python of
confluentinc), `franz-go` (twmb, needs Go), `kafkajs` (tulios, after `npm install`),
`confluent-javascript` (confluent-kafka-javascript, after `npm install` or `node-gyp rebuild` with
`BUILD_LIBRDKAFKA=0` and a librdkafka that is built; LD_LIBRARY_PATH finds it), `node-rdkafka`
(Blizzard, in the same way), `librdkafka` (confluentinc; first `./configure && make libs && make -C
tests test-runner`), `sarama` (IBM, Go; beside it `toxiproxy-server`, which is
github.com/Shopify/toxiproxy/v2/cmd/server), `kafka-go` (segmentio, Go), `confluent-go`
(confluent-kafka-go of confluentinc, Go), `rskafka` (influxdata, after `cargo fetch`). What Go and
Rust want is a copy of the module or the crate, which has its tests. `--python` is an interpreter
with what a suite in Python wants: pytest, pytest-timeout, pytest-asyncio, pytest-mock, docker, the
client itself. They want their server on port 9092: the run makes itself a network of its own
(`unshare --net`, as root). What needs share groups is left out without `--share` (`franz-go`,
`confluent`), security without `--secured` (`aiokafka`, `kafkajs`, `confluent-go`), the schema
registry without `--registry` (`confluent`); nothing of the suites is changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.server import start_server

from tools.kafka_suites.clusters import cluster_of
from tools.kafka_suites.golang import confluent_go, franz_go, kafka_go, sarama
from tools.kafka_suites.javascript import confluent_javascript, kafkajs, node_rdkafka
from tools.kafka_suites.programs import (
    ADDRESS,
    Run,
    aiokafka,
    confluent,
    kafka_python,
    left_out,
    librdkafka,
)
from tools.kafka_suites.rust import rskafka
from tools.kafka_suites.secured import SECURED
from tools.servers.java import jars
from tools.servers.kafka import RealKafka
from tools.suites import enter_own_network, report

SUITES: dict[str, Callable[[Run], None]] = {
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "confluent": confluent,
    "franz-go": franz_go,
    "librdkafka": librdkafka,
    "kafkajs": kafkajs,
    "confluent-javascript": confluent_javascript,
    "node-rdkafka": node_rdkafka,
    "sarama": sarama,
    "kafka-go": kafka_go,
    "confluent-go": confluent_go,
    "rskafka": rskafka,
}
REGISTRY = "127.0.0.1:8081"
SCRIPTS = {
    "kafka-run-class.sh": "",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "kafka.admin.AclCommand",
}


@contextmanager
def server(name: str, suite: str, log: Path, job: Run, nodes: int) -> Iterator[None]:
    """One on the port that the suites want."""
    delay_ms = 0 if job.quick else 3_000  # Kafka's default: some full tests count on it
    cluster = cluster_of(suite)
    auto_create = job.auto_create and cluster.auto_create
    secured = SECURED[suite] if job.secured else None
    with tempfile.TemporaryDirectory() as folder:
        if name == "trilogue":
            ours = start_server(
                Path(folder) / "data",
                arguments=["--nodes", str(nodes)] if nodes > 1 else [],
                listen={
                    "kafka": ADDRESS,
                    **({"http": REGISTRY} if job.registry else {}),
                    **(secured.listen() if secured else {}),
                },
                settings={
                    "topics.default-partitions": cluster.partitions,
                    "groups.initial-delay": f"{delay_ms}ms",
                    "groups.session-timeout-min": "1s",
                    "topics.auto-create": auto_create,
                    **({"groups.share-record-lock-min": "1s"} if job.share else {}),
                    **cluster.ours,
                    **(secured.of_trilogue(Path(folder), job.folder) if secured else {}),
                },
            )
            stop, output = ours.kill9, ours.log_file
        else:
            settings: dict[str, object] = {
                "num.partitions": cluster.partitions,
                "group.min.session.timeout.ms": 1000,
                "group.initial.rebalance.delay.ms": delay_ms,
                "auto.create.topics.enable": str(auto_create).lower(),
                **cluster.real,
                **(secured.of_kafka(Path(folder), job.folder) if secured else {}),
            }
            if name.startswith("3."):
                settings["group.coordinator.rebalance.protocols"] = "classic,consumer"
            if job.share:  # as librdkafka's own cluster
                settings["share.coordinator.state.topic.replication.factor"] = 1
                settings["share.coordinator.state.topic.min.isr"] = 1
                settings["share.coordinator.state.topic.num.partitions"] = 4
                settings["group.share.min.record.lock.duration.ms"] = 1000
            real = RealKafka(
                Path(folder),
                version=name,
                port=9092,
                settings=settings,
                secured=secured.addresses() if secured else None,
            )
            real.start()
            stop, output = real.kill9, Path(folder) / "output"
        try:
            for mechanism, user, password in secured.scram if secured else ():
                alter = ["--bootstrap-server", ADDRESS, "--alter", "--entity-type", "users"]
                added = f"{mechanism}=[password={password}]"
                what = [*alter, "--entity-name", user, "--add-config", added]
                subprocess.run([job.tools / "bin/kafka-configs.sh", *what], check=True)
            yield
        finally:
            stop()
            shutil.copy(output, log)


def make_tools(folder: Path) -> Path:
    """What some suites call beside the client, where a distribution of Kafka has it."""
    (folder / "bin").mkdir()
    (folder / "libs").symlink_to(jars("3.9.1"))
    for name, program in SCRIPTS.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec java -cp "{folder}/libs/*:$CLASSPATH" {program} "$@"\n')
        script.chmod(0o755)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="suites of Kafka's own clients")
    parser.add_argument("suite", choices=[*SUITES, "report"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--server", default="trilogue", help="trilogue, or a version of Kafka")
    parser.add_argument("--says", default="3.9.1", help="the version that the suite is told of")
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--consumer", action="store_true", help="groups of KIP-848")
    parser.add_argument("--no-auto-create", action="store_true", help="of topics")
    parser.add_argument("--full", action="store_true", help="librdkafka: not in quick mode")
    parser.add_argument("--secured", action="store_true", help="with TLS, logins and ACLs")
    parser.add_argument("--share", action="store_true", help="share groups too")
    parser.add_argument("--nodes", type=int, default=1, help="of Trilogue")
    parser.add_argument("--registry", action="store_true", help="confluent: of Trilogue")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each test at most")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--log", type=Path, default=Path("/tmp/kafka-suites-server.log"))
    parser.add_argument("--out", type=Path, help="of a run that was ended: it goes on")
    parser.add_argument("--ours", type=Path)
    parser.add_argument("--real", type=Path)
    chosen = parser.parse_args()
    if chosen.suite == "report":
        ours, real = (json.loads(each.read_text()) for each in (chosen.ours, chosen.real))
        report(ours, real, "Kafka", partial(left_out, secured=chosen.secured, share=chosen.share))
        return
    enter_own_network("tools.kafka_suites")
    version = chosen.says if chosen.server == "trilogue" else chosen.server
    scratch = tempfile.TemporaryDirectory()
    tools = make_tools(Path(scratch.name))
    job = Run(
        chosen.folder,
        chosen.only,
        chosen.seconds,
        version,
        chosen.python,
        tools,
        consumer=chosen.consumer,
        auto_create=not chosen.no_auto_create,
        quick=not chosen.full,
        secured=chosen.secured,
        share=chosen.share,
        registry=f"http://{REGISTRY}/schema-registry" if chosen.registry else "",
    )
    if chosen.out and chosen.out.exists():
        job.results.update(json.loads(chosen.out.read_text()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    try:
        with scratch, server(chosen.server, chosen.suite, chosen.log, job, chosen.nodes):
            SUITES[chosen.suite](job)
    finally:
        if chosen.out:
            chosen.out.write_text(json.dumps(job.results, indent=1) + "\n")


if __name__ == "__main__":
    main()
