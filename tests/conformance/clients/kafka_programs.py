"""The foreign Kafka clients in other languages: how each is built and started."""

from __future__ import annotations

from pathlib import Path

from tools.servers.java import jars

from tests.conformance.clients.building import (
    BUILD,
    HERE,
    JAVA_LINES,
    QUICK_START,
    QUIET,
    classes,
    go_program,
    node_folder,
    require_go,
)
from tests.conformance.clients.driven import Driven
from tests.tools import require_jars, require_program

GO_NEEDS = (1, 26)  # franz-go's own go.mod; sarama's is content with 1.25


COMMON = frozenset(
    {
        *("topics", "partitions", "create", "delete", "grow", "configs", "alter", "offsets"),
        *("delete_records", "cluster", "groups", "describe_group", "group_offsets"),
        "delete_group",
    }
)
GROUPS = frozenset({"alter_group_offsets", "delete_group_offsets"})
STATES = frozenset({"producers", "transactions", "describe_transaction", "newest"})
REPLICAS = frozenset({"elect", "reassign", "reassignments"})
QUOTAS = frozenset({"quotas", "set_quota"})


class JavaClient(Driven):
    """org.apache.kafka:kafka-clients of one version, the program compiled against its own jars."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version
        self.name = f"java-{version}"
        self.age = "before-3" if int(version.split(".", maxsplit=1)[0]) < 3 else "since-3"
        self.verbs = COMMON | {"log_dirs"}
        if self.age == "since-3":
            self.verbs |= GROUPS | STATES | REPLICAS | QUOTAS

    def require(self) -> None:
        require_jars(self.version)
        require_program("javac")

    def command(self) -> list[str | Path]:
        folder = HERE / "java-kafka"
        sources = [JAVA_LINES, folder / "Driver.java", folder / "Administration.java"]
        sources.append(folder / self.age / "Later.java")
        path = f"{jars(self.version)}/*"
        made = classes(BUILD / "kafka-clients" / self.name, sources, path)
        return ["java", *QUICK_START, QUIET, "-cp", f"{made}:{path}", "Driver"]


class FranzGo(Driven):
    """github.com/twmb/franz-go, built from go-kafka/ with the sums checked in."""

    name = "franz-go"
    verbs = COMMON | GROUPS | STATES | REPLICAS | QUOTAS | {"log_dirs", "epoch_end"}

    def require(self) -> None:
        require_go(GO_NEEDS)

    def command(self) -> list[str | Path]:
        return [go_program(HERE / "go-kafka", BUILD / "kafka-clients" / "franz-go", "./franz")]


class Sarama(Driven):
    """github.com/IBM/sarama, built from go-kafka/ with the sums checked in."""

    name = "sarama"
    verbs = COMMON | GROUPS | REPLICAS | QUOTAS | {"log_dirs"}
    verbs |= {"producers", "transactions", "describe_transaction"}
    verbs |= {"scram_users", "set_scram", "delete_scram"}

    def require(self) -> None:
        require_go(GO_NEEDS)

    def command(self) -> list[str | Path]:
        return [go_program(HERE / "go-kafka", BUILD / "kafka-clients" / "sarama", "./sarama")]


class Kafkajs(Driven):
    """npm's kafkajs, installed from node-kafka/ with the sums checked in, beside the driver."""

    name = "kafkajs"
    # It sets positions too, but as a member of the group, which waits five seconds.
    verbs = COMMON | {"reassign", "reassignments"}
    cannot = frozenset({"null headers", "order of headers"})  # a name has all its values at once

    def require(self) -> None:
        require_program("node")
        require_program("npm")

    def command(self) -> list[str | Path]:
        made = node_folder(HERE / "node-kafka", BUILD / "kafka-clients" / "kafkajs")
        return ["node", made / "driver.js"]


JAVA_2, JAVA_3, JAVA_4 = JavaClient("2.0.0"), JavaClient("3.9.1"), JavaClient("4.3.1")
FRANZ_GO, SARAMA, KAFKAJS = FranzGo(), Sarama(), Kafkajs()
PROGRAMS: list[Driven] = [JAVA_2, JAVA_3, JAVA_4, FRANZ_GO, SARAMA, KAFKAJS]
