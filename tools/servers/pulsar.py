"""A real standalone Apache Pulsar (RocksDB metadata, one embedded bookie) on 127.0.0.1.

    pulsar = RealPulsar(tmp_path, durable=True)
    pulsar.start()                        # comes back when a producer can be opened
    client = pulsar_client(f"pulsar://{pulsar.address}")
    pulsar.kill9(); pulsar.restart()      # the same data, the same ports
    pulsar.stop()

The jars come from `make jars`. `durable` means journalSyncData=true: the bookie fsyncs before its
ack, which is what Trilogue does by default (the distribution's standalone mode does not). The
limits of heap and direct memory are those of a small test server, not recommendations.

By hand: python -m tools.servers.pulsar DIRECTORY [--version 4.0.7] [--durable] [--port 6650]
"""

from __future__ import annotations

import argparse
import http.client
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tools.servers.java import JavaServer, jars
from tools.servers.probe import free_port, process_state, receive

VERSION = "4.0.7"
START_TIMEOUT = 300.0
LOOK_EVERY = 0.05
OPENED_PACKAGES = [
    "java.base/java.nio", "java.base/jdk.internal.misc", "java.base/sun.net", "java.base/java.lang",
    "java.base/java.io", "java.base/java.util.zip", "java.base/java.util",
    "java.base/jdk.internal.platform", "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
]  # fmt: skip
"""What netty, the memory of the bookie and the metrics reach into (bin/pulsar opens the same)."""
PROPERTIES = """\
brokerServicePort={port}
webServicePort={http_port}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
brokerShutdownTimeoutMs=3000
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
loadManagerClassName=org.apache.pulsar.broker.loadbalance.NoopLoadManager
loadBalancerEnabled=false
acknowledgmentAtBatchIndexLevelEnabled=true
allowAutoTopicCreation=true
allowAutoTopicCreationType=non-partitioned
allowAutoSubscriptionCreation=true
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
transactionCoordinatorEnabled=true
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
nettyMaxFrameSizeBytes=5253120
flushInterval=60000
journalMaxGroupWaitMSec=1
journalSyncData={durable}
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.99
allowLoopback=true
gcWaitTime=300000
webSocketServiceEnabled=false
"""
LOGGING = """\
status = warn
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d{HH:mm:ss.SSS} [%t] %-5level %c{1} - %msg%n%throwable{short}
rootLogger.level = info
rootLogger.appenderRef.c.ref = C
"""
CONNECT = b"\x08\x02\x12\x09" + b"\x0a\x05probe" + b"\x20\x0c"
"""BaseCommand of type 2 with CommandConnect: client_version "probe", protocol_version 12."""
PRODUCER_SUCCESS = 17
PROBED_TOPIC = b"persistent://pulsar/system/probe"
"""In the namespace that a standalone broker makes last."""


def have_jars(version: str = VERSION) -> bool:
    """Whether `make jars` fetched this version."""
    return any(jars(f"pulsar-{version}").glob("pulsar-broker-[0-9]*.jar"))


class RealPulsar(JavaServer):
    """One broker with a directory of its own."""

    name = "pulsar"

    def __init__(
        self,
        root: Path,
        *,
        version: str = VERSION,
        durable: bool = False,
        heap: str = "512m",
        direct: str = "1g",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        nice: bool = True,
    ) -> None:
        super().__init__(root)
        self.nice = nice  # tests leave the machine to others; a benchmark does not
        self.version = version
        self.port = port or free_port()
        self.http_port = free_port()
        self.bookie_port = free_port()
        self.heap = heap
        self.direct = direct
        text = PROPERTIES.format(
            port=self.port, http_port=self.http_port, durable=str(durable).lower()
        )
        text += "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        self.properties = root / "standalone.conf"
        self.properties.write_text(text)
        self.logging = root / "log4j2.properties"
        self.logging.write_text(LOGGING)

    @property
    def address(self) -> str:
        """Of the binary protocol, `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        """Of the administration, a URL."""
        return f"http://127.0.0.1:{self.http_port}"

    def launch(self) -> None:
        """Start the process and do not wait for its first answer."""
        options = ["-Xms256m", f"-Xmx{self.heap}", f"-XX:MaxDirectMemorySize={self.direct}"]
        options += ["-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"]
        options += ["-Djava.net.preferIPv4Stack=true", "-Dio.netty.leakDetectionLevel=disabled"]
        options += ["-Dio.netty.tryReflectionSetAccessible=true"]
        options += [f"-Dlog4j2.configurationFile={self.logging}"]
        options += [f"--add-opens={name}=ALL-UNNAMED" for name in OPENED_PACKAGES]
        command = ["nice"] if self.nice else []
        command += ["java", *options, "-cp", f"{jars(f'pulsar-{self.version}')}/*"]
        command += ["org.apache.pulsar.PulsarStandaloneStarter", "-a", "127.0.0.1"]
        command += ["--config", str(self.properties), "--num-bookies", "1"]
        command += ["--metadata-dir", str(self.root / "metadata")]
        command += ["--bookkeeper-dir", str(self.root / "bookkeeper")]
        command += ["--bookkeeper-port", str(self.bookie_port)]
        command += ["--no-functions-worker", "--no-stream-storage"]
        self.run(command)

    def start(self) -> RealPulsar:
        began = time.monotonic()
        self.launch()
        while not self.answers():
            if process_state(self.pid) == "Z":
                raise RuntimeError(f"pulsar ended before it answered:\n{self.output[-2000:]}")
            if time.monotonic() - began > START_TIMEOUT:
                self.kill9()
                raise RuntimeError(f"pulsar did not answer within {START_TIMEOUT} s")
            time.sleep(LOOK_EVERY)
        self.started_in = time.monotonic() - began
        return self

    def answers(self) -> bool:
        """Whether a producer can be opened and the default namespace is there."""
        try:
            return opens_producer(self.address) and self._has_namespace("public/default")
        except (OSError, http.client.HTTPException):
            return False

    def _has_namespace(self, namespace: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
        try:
            connection.request("GET", f"/admin/v2/namespaces/{namespace}")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def restart(self) -> RealPulsar:
        """Stop it if it runs, and start it again with what it has stored."""
        if self.alive:
            self.stop()
        return self.start()


def opens_producer(address: str, name: bytes = PROBED_TOPIC) -> bool:
    """CONNECT, LOOKUP, PRODUCER: whether all three are answered and the last one well."""
    host, port = address.rsplit(":", 1)
    topic = b"\x0a" + bytes([len(name)]) + name
    lookup = topic + b"\x10\x01"
    producer = topic + b"\x10\x01\x18\x02"
    commands = [
        CONNECT,
        b"\x08\x17\xba\x01" + bytes([len(lookup)]) + lookup,
        b"\x08\x05\x2a" + bytes([len(producer)]) + producer,
    ]
    with socket.create_connection((host, int(port)), 10.0) as connection:
        kinds = [send_request(connection, command) for command in commands]
    return kinds[-1] == PRODUCER_SUCCESS


def send_request(connection: socket.socket, command: bytes) -> int:
    """Send one command; the type of what comes back (pings are not answered: this is quick)."""
    framed = len(command).to_bytes(4, "big") + command
    connection.sendall(len(framed).to_bytes(4, "big") + framed)
    answer = receive(connection, int.from_bytes(receive(connection, 4), "big"))
    return answer[5]  # size, the tag of field 1, its value


def main() -> None:
    parser = argparse.ArgumentParser(description="a real Pulsar broker until SIGINT or SIGTERM")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    chosen = parser.parse_args()
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    pulsar = RealPulsar(
        chosen.directory, version=chosen.version, durable=chosen.durable, port=chosen.port
    ).start()
    print(
        f"pulsar {chosen.version} on {pulsar.address} and {pulsar.http}, "
        f"pid {pulsar.pid}, {pulsar.started_in:.2f} s"
    )
    signal.sigwait(ends)
    pulsar.stop()


if __name__ == "__main__":
    main()
