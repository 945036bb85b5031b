"""A real Apache Kafka broker with ZooKeeper, as before KRaft, on 127.0.0.1: requests 4 to 7.

    kafka = ZooKeeperKafka(tmp_path)     # 3.9.1, the last version that has it
    kafka.start()                        # ZooKeeper, then the broker
    kafka.broker_epoch                   # what requests of a controller must have
    kafka.stop()

`advertised` is an address that the controller and clients connect to instead of the broker's own,
so that a recorder can stand between.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tools.servers.java import JavaServer, jars
from tools.servers.probe import free_port, wait_for_answer

VERSION = "3.9.1"
START_S = 60.0
ZOOKEEPER = """\
dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
tickTime=2000
admin.enableServer=false
maxClientCnxns=0
"""
BROKER = """\
broker.id=1
zookeeper.connect=127.0.0.1:{zookeeper_port}
listeners=PLAINTEXT://{address}
advertised.listeners=PLAINTEXT://{advertised}
inter.broker.protocol.version=3.9
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
REGISTERED = re.compile(r"czxid \(broker epoch\): (\d+)")


class ZooKeeper(JavaServer):
    """One ZooKeeper."""

    name = "zookeeper"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.port = free_port()
        self.properties = root / "zookeeper.properties"
        self.properties.write_text(ZOOKEEPER.format(data=root / "data", port=self.port))

    def start(self) -> None:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.run(["java", "-Xmx256m", "-cp", f"{jars(VERSION)}/*", main, str(self.properties)])
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                assert self.alive, self.output
                assert time.monotonic() < end, "ZooKeeper does not listen"
                time.sleep(0.05)
            else:
                return


class ZooKeeperKafka(JavaServer):
    """One broker, which is the controller too, and its ZooKeeper."""

    name = "kafka"

    def __init__(
        self, root: Path, *, advertised: str = "", settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(root)
        self.zookeeper = ZooKeeper(root / "zookeeper")
        self.address = f"127.0.0.1:{free_port()}"
        text = BROKER.format(
            zookeeper_port=self.zookeeper.port,
            address=self.address,
            advertised=advertised or self.address,
            data=root / "data",
        )
        text += "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        self.properties = root / "server.properties"
        self.properties.write_text(text)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's newest registration."""
        return int(REGISTERED.findall(self.output)[-1])

    def start(self) -> ZooKeeperKafka:
        """Start both processes; comes back with the first answer."""
        self.zookeeper.start()
        log = "-Dorg.slf4j.simpleLogger"
        options = ["-Xmx512m", f"{log}.defaultLogLevel=warn", f"{log}.log.kafka.zk=info"]
        command = ["java", *options, "-cp", f"{jars(VERSION)}/*", "kafka.Kafka"]
        self.run([*command, str(self.properties)])
        wait_for_answer(self.address, self.pid)
        return self

    def stop(self) -> int:
        """Stop the broker, then ZooKeeper."""
        code = super().stop()
        self.zookeeper.kill9()
        return code

    def kill9(self) -> None:
        """Kill both."""
        super().kill9()
        self.zookeeper.kill9()
