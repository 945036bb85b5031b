"""A real single-node Apache Kafka (KRaft, broker and controller in one) on 127.0.0.1.

    kafka = RealKafka(tmp_path, version="3.9.1", durable=True)
    kafka.start()                    # comes back with the first answer
    client = connect(kafka.address)
    kafka.kill9(); kafka.start()     # the same data, the same port
    kafka.stop()

The jars come from `make jars`. `durable` means log.flush.interval.messages=1: every batch is
fsynced before its ack, which is what Trilogue does by default. The numbers of partitions and the
zero rebalance delay are those of a small test cluster, not recommendations.

By hand: python -m tools.servers.kafka DIRECTORY [--version 4.3.1] [--durable] [--port 9092]
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tools.servers.java import JavaServer, jars
from tools.servers.probe import free_port, wait_for_answer

GARBAGE_COLLECTION = [
    "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
]  # fmt: skip
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners={listeners},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}
log.dirs={data}
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=10
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=10
group.initial.rebalance.delay.ms=0
"""


def have_jars(version: str) -> bool:
    return any(jars(version).glob("kafka-clients-*.jar"))


class RealKafka(JavaServer):
    """One broker with a directory of its own."""

    name = "kafka"

    def __init__(
        self,
        root: Path,
        *,
        version: str = "3.9.1",
        durable: bool = False,
        heap: str = "1g",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        secured: Mapping[str, str] | None = None,
    ) -> None:
        """`secured`: security protocol -> address of a listener besides the one in clear."""
        super().__init__(root)
        self.data = root / "data"
        self.version = version
        self.port = port or free_port()
        self.heap = heap
        extra = dict(settings or {})
        if durable:
            extra["log.flush.interval.messages"] = 1
        opened = {"PLAINTEXT": self.address, **(secured or {})}
        text = PROPERTIES.format(
            listeners=",".join(f"{protocol}://{address}" for protocol, address in opened.items()),
            protocols=",".join(f"{protocol}:{protocol}" for protocol in opened),
            controller_port=free_port(),
            data=self.data,
        )
        text += "".join(f"{key}={value}\n" for key, value in extra.items())
        self.properties = root / "server.properties"
        self.properties.write_text(text)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        tool = ["java", "-cp", f"{jars(self.version)}/*", "kafka.tools.StorageTool"]
        made = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=True)
        cluster_id = made.stdout.strip().splitlines()[-1]
        command = [*tool, "format", "-t", cluster_id, "-c", str(self.properties)]
        subprocess.run(command, capture_output=True, check=True)

    def launch(self) -> None:
        """Start the process and do not wait for its first answer."""
        if not (self.data / "meta.properties").exists():
            self.format()
        options = [f"-Xms{self.heap}", f"-Xmx{self.heap}", *GARBAGE_COLLECTION]
        options += ["-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = ["java", *options, "-cp", f"{jars(self.version)}/*", "kafka.Kafka"]
        self.run([*command, str(self.properties)])

    def start(self) -> RealKafka:
        self.launch()
        began = time.monotonic()
        self.started_in = wait_for_answer(self.address, self.pid) - began
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description="a real Kafka broker until SIGINT or SIGTERM")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--version", default="3.9.1")
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    chosen = parser.parse_args()
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    kafka = RealKafka(
        chosen.directory, version=chosen.version, durable=chosen.durable, port=chosen.port
    ).start()
    print(f"kafka {chosen.version} on {kafka.address}, pid {kafka.pid}, {kafka.started_in:.2f} s")
    signal.sigwait(ends)
    kafka.stop()


if __name__ == "__main__":
    main()
