"""A real Apache TubeMQ (a master with its metadata in Berkeley DB, brokers), shut off from others.

    tubemq = RealTubeMQ(tmp_path)
    tubemq.start({"orders": 4})               # the topics are usable after half a minute
    tubemq.create_topics({"more": 4})         # 40 to 80 seconds
    with tubemq.inside():                     # its own network, see network.py
        connect(tubemq.address)        # clients of this process, programs started here
    tubemq.kill9(); tubemq.start()            # the same data, the same ports
    tubemq.stop()

It listens on all addresses and has no setting against that: so it gets a network namespace of its
own; where that is not possible (not root, not Linux) it does not start, unless `exposed` is set.
The jars come from `make jars`: the server 2.4.0, core and client 1.13.0. By default periods are
short, for tests: the master looks every second and a half for consumers without partitions.

By hand: python -m tools.servers.tubemq DIRECTORY [--topic orders=4 ...] [--exposed]
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from tools.servers.java import JavaServer, jars
from tools.servers.network import OwnNetwork, may_have_one
from tools.servers.probe import free_port, process_state

VERSION = "2.4.0"
CLIENT_VERSION = "1.13.0"
START_TIMEOUT = 90.0
TOPIC_TIMEOUT = 240.0
LOOK_EVERY = 0.1
TOKEN = "oracle"  # confModAuthToken: what an administrator must know
TLS_PORT = 8124  # never bound; the broker reports it, and the master insists that both agree
BROKER_ID = 1
OPENED_PACKAGES = ("java.lang", "java.nio", "sun.nio.ch", "java.util")

MASTER = """\
[master]
hostName=127.0.0.1
port={port}
webPort={web_port}
consumerBalancePeriodMs=1500
firstBalanceDelayAfterStartMs=1000
consumerHeartbeatTimeoutMs=30000
producerHeartbeatTimeoutMs=30000
brokerHeartbeatTimeoutMs=25000
stepChgWaitPeriodMs=1000
confModAuthToken={token}
webResourcePath={root}/resources
{settings}
[meta_bdb]
repGroupName=oracle
repNodeName=oracle1
repNodePort={other_port}
metaDataPath={root}/data/meta
repHelperHost=127.0.0.1:{other_port}
metaLocalSyncPolicy=1
metaReplicaSyncPolicy=3
repReplicaAckPolicy=1
repStatusCheckTimeoutMs=10000
"""
BROKER = """\
[broker]
brokerId={id}
hostName=127.0.0.{id}
port={port}
webPort={web_port}
masterAddressList={master}
primaryPath={root}/data/{folder}
maxSegmentSize=1073741824
maxIndexSegmentSize=22020096
transferSize=524288
loadMessageStoresInParallel=true
consumerRegTimeoutMs=35000
{settings}
"""
LOGGING = """\
<Configuration status="error"><Appenders><Console name="c" target="SYSTEM_OUT">
<PatternLayout pattern="%d %p %t %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers></Configuration>
"""
RESOURCES = {
    "velocity.properties": "resource.loaders=file\nresource.loader.file.class="
    "org.apache.velocity.runtime.resource.loader.FileResourceLoader\n"
    "resource.loader.file.path={root}/resources/templates\nvelocimacro.library.path=macro.vm\n",
    "templates/macro.vm": "## none\n",
    "templates/layout/default.vm": "$screen_placeholder",
    "templates/layout/webapi.vm": "$screen_placeholder",
    "templates/screen/webapi.vm": "$sb",
}
"""Templates of the web API, which the server's jar does not hold: each answer is one variable."""


def have_jars(version: str = VERSION) -> bool:
    """Whether `make jars` fetched this version."""
    return (jars(f"tubemq-{version}") / f"tubemq-server-{version}.jar").exists()


class RealTubeMQ:
    """Master and broker with a directory and a network of their own."""

    name = "tubemq"

    def __init__(
        self,
        root: Path,
        *,
        version: str = VERSION,
        master: Mapping[str, object] | None = None,
        broker: Mapping[str, object] | None = None,
        master_heap: str = "256m",
        heap: str = "512m",
        direct: str = "1g",
        exposed: bool = False,
        nice: bool = True,
        broker_ids: tuple[int, ...] = (BROKER_ID,),
    ) -> None:
        """`master` and `broker` are settings of the .ini files.

        Each topic is at all brokers, whose ids are the ends of their addresses: 127.0.0.ID.
        """
        if not exposed and not may_have_one():
            raise PermissionError("a real TubeMQ listens on all addresses: needs root, or exposed")
        self.network = None if exposed else OwnNetwork()
        self.root = root
        self.version = version
        self.master_settings = dict(master or {})
        self.broker_settings = {"heartbeatPeriodMs": 1000, **(broker or {})}
        self.master_heap, self.heap, self.direct = master_heap, heap, direct
        self.nice = nice  # tests leave the machine to others; a benchmark does not
        self.started_in = 0.0
        with self.inside():
            self.master_port, self.master_web, self.replication_port = free_ports(3)
            self.broker_ports = {one: (free_port(), free_port()) for one in broker_ids}
        self.master = JavaServer(root / "master")
        self.brokers = {one: JavaServer(root / folder_of(one)) for one in broker_ids}

    def inside(self) -> AbstractContextManager[None]:
        """Where its addresses mean something: see network.py."""
        return nullcontext() if self.network is None else self.network.inside()

    @property
    def address(self) -> str:
        """The address of the master, as clients use it."""
        return f"127.0.0.1:{self.master_port}"

    @property
    def broker(self) -> JavaServer:
        """The first broker; most have no other."""
        return next(iter(self.brokers.values()))

    @property
    def broker_port(self) -> int:
        return next(iter(self.broker_ports.values()))[0]

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self.broker_port}"

    @property
    def web(self) -> str:
        """Of the administration, a URL."""
        return f"http://127.0.0.1:{self.master_web}/webapi.htm"

    @property
    def token(self) -> str:
        return TOKEN

    @property
    def pid(self) -> int:
        """Of the broker, which does the work."""
        return self.broker.pid

    @property
    def pids(self) -> list[int]:
        return [self.master.pid, *(each.pid for each in self.brokers.values())]

    @property
    def alive(self) -> bool:
        return self.master.alive and all(each.alive for each in self.brokers.values())

    @property
    def output(self) -> str:
        return "".join(each.output for each in (self.master, *self.brokers.values()))

    def start(self, topics: Mapping[str, int] | None = None) -> RealTubeMQ:
        """Start all processes; return when a client could register at each.

        `topics` are created before brokers request their topics, which is the fastest way, and
        are usable at the return."""
        began = time.monotonic()
        self._write_files()
        with self.inside():
            try:
                self._start_master()
                for name, partitions in (topics or {}).items():
                    self.add_topic(name, partitions)
                self._start_broker()
                self.started_in = time.monotonic() - began
                self.wait_for_topics(topics or {})
            except BaseException:
                self.kill9()
                raise
        return self

    def start_broker(self) -> None:
        """Start brokers again whose processes were killed."""
        with self.inside():
            self._start_broker()

    def _start_master(self) -> None:
        self._run(self.master, "MasterStartup", self.master_heap, [])
        self._wait(self.master, lambda: listens(self.master_port) and listens(self.master_web))
        self._wait(self.master, self._web_answers)
        listed = self.request("op_query", "admin_query_broker_configure", token=False)
        if listed.get("data"):
            return
        for broker_id, (port, web_port) in self.broker_ports.items():
            self.request(
                "op_modify", "admin_add_broker_configure", brokerId=broker_id,
                brokerIp=f"127.0.0.{broker_id}", brokerPort=port, brokerTLSPort=TLS_PORT,
                brokerWebPort=web_port,
                deletePolicy="delete,168h", numPartitions=1, acceptPublish="true",
                acceptSubscribe="true", unflushThreshold=1000, unflushInterval=10000,
                createUser="oracle", modifyUser="oracle",
            )  # fmt: skip
            self.request(
                "op_modify", "admin_online_broker_configure",
                brokerId=broker_id, modifyUser="oracle",
            )  # fmt: skip

    def _start_broker(self) -> None:
        options = [f"-XX:MaxDirectMemorySize={self.direct}"]
        for broker_id, server in self.brokers.items():
            if not server.alive:
                self._run(server, "BrokerStartup", self.heap, options)
                self._wait(server, partial(listens, self.broker_ports[broker_id][0]))

    def create_topics(self, topics: Mapping[str, int], **more: object) -> None:
        """Names and numbers of partitions; comes back when all are usable. `more` goes along."""
        for name, partitions in topics.items():
            self.add_topic(name, partitions, **more)
        self.reload()
        self.wait_for_topics(topics)

    def add_topic(self, name: str, partitions: int, **more: object) -> None:
        with self.inside():
            self.request(
                "op_modify", "admin_add_new_topic_record", brokerId=self._all_ids, topicName=name,
                **{"numPartitions": partitions, "deletePolicy": "delete,168h",
                   "acceptPublish": "true", "acceptSubscribe": "true", "unflushThreshold": 1000,
                   "unflushInterval": 10000, **more},
                createUser="oracle", modifyUser="oracle",
            )  # fmt: skip

    def reload(self) -> None:
        """Reload the broker's configuration; rejected while a reload is in progress."""
        end = time.monotonic() + TOPIC_TIMEOUT
        while True:
            try:
                with self.inside():
                    self.request("op_modify", "admin_reload_broker_configure",
                                 brokerId=self._all_ids, modifyUser="oracle")  # fmt: skip
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(LOOK_EVERY)
            else:
                return

    @property
    def _all_ids(self) -> str:
        return ",".join(map(str, self.brokers))

    def wait_for_topics(self, topics: Mapping[str, int]) -> None:
        end = time.monotonic() + TOPIC_TIMEOUT
        while missing := set(topics) - self.usable_topics():
            if time.monotonic() > end:
                raise TimeoutError(f"not usable after {TOPIC_TIMEOUT} s: {sorted(missing)}")
            time.sleep(LOOK_EVERY)

    def usable_topics(self) -> set[str]:
        """The topics that all brokers have reported as served, for writing and reading."""
        with self.inside():
            answer = self.request("op_query", "admin_query_topic_info", token=False)
        keys = ("acceptPublish", "acceptSubscribe")
        return {
            topic["topicName"]
            for topic in answer.get("data") or []
            if topic["topicInfo"]
            and all(
                one.get("runInfo", {}).get(key) is True
                for one in topic["topicInfo"]
                for key in keys
            )
        }

    def request(self, kind: str, method: str, *, token: bool = True, **words: object) -> dict:
        """One request of the web API (from inside); RuntimeError with its text when refused."""
        parameters = {"type": kind, "method": method, **words}
        if token:
            parameters["confModAuthToken"] = TOKEN
        url = f"{self.web}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            response = json.load(answer)
        if not response["result"]:
            raise RuntimeError(f"{method}: {response.get('errMsg')}")
        return response

    def stop(self) -> int:
        """SIGTERM to all; SIGKILL when that takes too long."""
        servers = (*self.brokers.values(), self.master)
        codes = [server.stop() for server in servers if server.process]
        return max(codes, default=0)

    def kill9(self) -> None:
        for server in (*self.brokers.values(), self.master):
            server.kill9()

    def _web_answers(self) -> bool:
        try:
            self.request("op_query", "admin_query_broker_configure", token=False)
        except (OSError, RuntimeError, ValueError):
            return False
        return True

    def _write_files(self) -> None:
        for name, text in RESOURCES.items():
            path = self.root / "resources" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{root}", str(self.root)))
        common = {"root": self.root, "token": TOKEN}
        master = MASTER.format(
            port=self.master_port,
            web_port=self.master_web,
            other_port=self.replication_port,
            settings=lines(self.master_settings),
            **common,
        )
        for broker_id, (port, web_port) in self.broker_ports.items():
            folder = folder_of(broker_id)
            broker = BROKER.format(
                id=broker_id,
                port=port,
                web_port=web_port,
                master=self.address,
                folder=folder,
                settings=lines(self.broker_settings),
                **common,
            )
            (self.root / f"{folder}.ini").write_text(broker)
        (self.root / "master.ini").write_text(master)
        (self.root / "log4j2.xml").write_text(LOGGING)

    def _run(self, server: JavaServer, main: str, heap: str, options: list[str]) -> None:
        server_command = ["nice"] if self.nice else []
        server_command += ["java", f"-Dlog4j.configurationFile={self.root}/log4j2.xml"]
        server_command += [f"-Xms{heap}", f"-Xmx{heap}", *options, "-Djava.awt.headless=true"]
        server_command += ["-Djava.net.preferIPv4Stack=true"]
        server_command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES]
        server_command += ["-cp", f"{jars(f'tubemq-{self.version}')}/*"]
        server_command += [f"org.apache.inlong.tubemq.server.tools.{main}"]
        server.run([*server_command, "-f", str(self.root / f"{server.root.name}.ini")])

    def _wait(self, server: JavaServer, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + START_TIMEOUT
        while not ready():
            if process_state(server.pid) == "Z":
                raise RuntimeError(f"tubemq ended before it answered:\n{server.output[-2000:]}")
            if time.monotonic() > end:
                raise RuntimeError(f"tubemq did not answer:\n{server.output[-2000:]}")
            time.sleep(LOOK_EVERY)


def folder_of(broker_id: int) -> str:
    """Of its data, its output and its settings."""
    return "broker" if broker_id == BROKER_ID else f"broker-{broker_id}"


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 2.0).close()
    except OSError:
        return False
    return True


def lines(settings: Mapping[str, object]) -> str:
    return "\n".join(f"{key}={value}" for key, value in settings.items())


def main() -> None:
    parser = argparse.ArgumentParser(description="a real TubeMQ until SIGINT or SIGTERM")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--topic", action="append", default=[], help="NAME=PARTITIONS")
    parser.add_argument("--exposed", action="store_true", help="on all addresses of this machine")
    chosen = parser.parse_args()
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    pairs = [topic.rsplit("=", 1) for topic in chosen.topic]
    tubemq = RealTubeMQ(chosen.directory.absolute(), exposed=chosen.exposed)
    tubemq.start({name: int(count) for name, count in pairs})
    print(
        f"tubemq {tubemq.version}: master {tubemq.address}, broker {tubemq.broker_address}, "
        f"{tubemq.web}, pids {tubemq.pids}, {tubemq.started_in:.2f} s"
        f"; clients: nsenter --net -t {tubemq.pid} COMMAND" * (tubemq.network is not None),
        flush=True,
    )
    signal.sigwait(ends)
    tubemq.stop()


if __name__ == "__main__":
    main()
