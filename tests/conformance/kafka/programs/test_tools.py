"""Kafka's command-line tools of 3.9.1 and 4.3.1 work as on a real broker, or fail with a reason.

A row is a tool's arguments and its expected output; `{b}` is the address, `{t}` a topic of four
partitions with 30 records and `{g}` a group that read ten of them. What only Trilogue refuses is in
REFUSED, with the real one's response beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.java import Java
from tests.conformance.clients.kafka_tools import TOOLS, ToolOutput, Tools
from tests.conformance.conftest import unique

P = "org.apache.kafka.tools."
TOPICS, OFFSETS = P + "TopicCommand", P + "GetOffsetShell"
GROUPS = P + "consumer.group.ConsumerGroupCommand"
MOVES, ELECTIONS = P + "reassign.ReassignPartitionsCommand", P + "LeaderElectionCommand"
TRANSACTIONS, FEATURES, CLUSTER = P + "TransactionsCommand", P + "FeatureCommand", P + "ClusterTool"
METRICS, TOKENS, QUORUM = (
    P + name for name in ("ClientMetricsCommand", "DelegationTokenCommand", "MetadataQuorumCommand")
)
CONFIGS = "kafka.admin.ConfigCommand"
MEMBERLESS = "Consumer group '{g}' has no active members."
RESET = f"{GROUPS} --reset-offsets --group {{g}}"
RECORDS = [Record(b"k%d" % number, b"v%d" % number) for number in range(30)]

Row = tuple[str, str]
WORKS: Sequence[Row] = [
    (f"{TOPICS} --describe --topic {{t}}", r"PartitionCount: 4\s+ReplicationFactor: 1"),
    (f"{TOPICS} --describe --topic {{t}}", r"Partition: 3\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d"),
    (f"{TOPICS} --describe --under-replicated-partitions", r"^$"),
    (f"{TOPICS} --describe --unavailable-partitions", r"^$"),
    (f"{TOPICS} --list", "{t}"),
    (f"{GROUPS} --list --state", r"{g}\s+Empty"),
    (f"{GROUPS} --list --type", r"{g}\s+Classic"),
    (f"{GROUPS} --describe --group {{g}}", MEMBERLESS + r"\s+GROUP[^\n]+\n{g}\s+{t}\s+\d\s+\d+\s+"),
    (f"{GROUPS} --describe --group {{g}} --state", r"{b}\s+\(1\)\s+(-\s+)?Empty\s+0"),
    (f"{GROUPS} --describe --group {{g}} --members --verbose", MEMBERLESS),
    (f"{GROUPS} --describe --all-groups", r"{g}\s+{t}"),
    (f"{GROUPS} --describe --group nobody", "does not exist|[Gg]roup nobody not found"),
    (f"{RESET} --topic {{t}} --to-earliest --dry-run", r"{g}\s+{t}\s+2\s+0"),
    (f"{RESET} --topic {{t}}:0,1 --to-offset 3 --execute", r"{g}\s+{t}\s+1\s+3"),
    (f"{RESET} --topic {{t}}:0 --shift-by 2 --execute", r"{g}\s+{t}\s+0\s+5"),
    (f"{RESET} --topic {{t}} --to-datetime 2020-01-01T00:00:00.000 --execute", r"{t}\s+2\s+0"),
    (f"{RESET} --topic {{t}} --to-latest --export --dry-run", r"{t},3,0"),
    (f"{GROUPS} --delete-offsets --group {{g}} --topic {{t}}:0", r"{t}\s+0\s+Successful"),
    (f"{GROUPS} --delete --group {{g}}", r"\('{g}'\) was successful"),
    (f"{GROUPS} --delete --group {{g}}", "The group id does not exist"),
    (f"{OFFSETS} --topic {{t}} --time -2", r"{t}:0:0\n{t}:1:0\n{t}:2:0\n{t}:3:0"),
    (f"{OFFSETS} --topic {{t}} --time -3", r"{t}:0:"),
    (f"{OFFSETS} --topic {{t}} --time -4", r"{t}:0:0"),
    (f"{OFFSETS} --topic {{t}} --time -5", r"^$"),
    (f"{OFFSETS} --topic {{t}}", r"{t}:3:0"),
    (f"{P}DeleteRecordsCommand --offset-json-file {{deleted}}", r"{t}-0\s+low_watermark: 2"),
    (f"{P}LogDirsCommand --describe --topic-list {{t}}", r'"partition":"{t}-3","size":0'),
    (f"{ELECTIONS} --election-type preferred --topic {{t}} --partition 0", "already elected"),
    (f"{ELECTIONS} --election-type unclean --topic {{t}} --partition 0", "already elected"),
    (f"{MOVES} --generate --topics-to-move-json-file {{moved}} --broker-list 1", '"replicas":.1.'),
    (f"{MOVES} --execute --reassignment-json-file {{plan}}", "Successfully started"),
    (f"{MOVES} --execute --reassignment-json-file {{plan}} --throttle 1000000",
     r"throttle limit was set to 1000000 B/s(.*\n)+Successfully started"),
    (f"{MOVES} --verify --reassignment-json-file {{plan}}",
     "{t}-0 is complete(.*\n)+Clearing broker-level throttles"),
    (f"{MOVES} --list", "No partition reassignments found"),
    (f"{MOVES} --execute --reassignment-json-file {{elsewhere}}", "Unknown broker id 77"),
    (f"{TRANSACTIONS} list", r"^TransactionalId\s+Coordinator\s+ProducerId\s+TransactionState\s*$"),
    (f"{TRANSACTIONS} describe-producers --topic {{t}} --partition 0", "^ProducerId"),
    (f"{TRANSACTIONS} find-hanging --broker-id 1", r"Duration\(min\)\s*$"),
    (f"{TRANSACTIONS} describe --transactional-id x", "Failed to describe .* of transactional-id"),
    (f"{FEATURES} describe", "FinalizedVersionLevel"),
    (f"{FEATURES} downgrade --feature nothing.at.all=1", "Could not downgrade nothing.at.all"),
    (f"{CLUSTER} unregister --id 77", "BrokerIdNotRegisteredException"),
    (f"{QUORUM} describe --status", r"LeaderId:\s+1\n(.*\n)*CurrentVoters:\s+\[.*1.*\]"),
    (f"{QUORUM} describe --replication", r"Status\s*\n1\s+\S+\s+\d+\s+0\s+.*Leader"),
    (f"{CONFIGS} --describe --entity-type users", r"^(SCRAM.*)?$"),
    (f"{CONFIGS} --alter --entity-type users --entity-name u --add-config {{scram}}",
     "Completed updating config for user u"),
    ("AclCommand --list", "No Authorizer is configured"),
    ("AclCommand --add --allow-principal User:u --operation Read --topic t",
     "No Authorizer is configured"),
    ("AclCommand --remove --force --topic t", "No Authorizer is configured"),
    (f"{METRICS} --list", r"^m?$"),
    (f"{TOKENS} --describe --command-config {{nothing}}", "not allowed on PLAINTEXT"),
    (f"{CONFIGS} --describe --entity-type topics --entity-name {{t}}", "retention.ms=-1 sensitive"),
    (f"{CONFIGS} --alter --entity-type topics --entity-name {{t}} --add-config retention.ms=90000",
     "Completed updating config for topic"),
    (f"{P}StreamsResetter --application-id {{g}} --input-topics {{t}} --dry-run", "Dry run"),
    (f"{P}StreamsResetter --application-id {{g}} --input-topics {{t}}", "Reset-offsets"),
    (f"{P}ProducerPerformance --topic {{t}} --num-records 200 --record-size 100 --throughput -1",
     "200 records sent"),
    (f"{TOPICS} --delete --topic {{t}}", r"^$"),
]  # fmt: skip

REFUSED: Sequence[tuple[str, str, str]] = [
    (f"{FEATURES} upgrade --feature metadata.version=21", "there is no feature metadata.version",
     "metadata.version"),
    (f"{METRICS} --alter --name m --metrics org.apache.kafka. --interval 10000",
     "measures of clients are not collected here", "Altered client metrics config for m"),
]  # fmt: skip
"""Words, Trilogue's sentence, the real one's."""

SINCE_4: Sequence[Row] = [
    (f"{CLUSTER} list-endpoints", r"127.0.0.1\s+\d+\s+null\s+unfenced\s+broker"),
    (f"{P}GroupsCommand --list", r"{g}\s+Classic\s+consumer"),
    (f"{P}consumer.group.ShareGroupCommand --list", r"^$"),
    (f"{P}streams.StreamsGroupCommand --list", r"^$"),
]

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


class Asker:
    """A version's tools, a topic and a group, and what the rows' words stand for."""

    def __init__(self, tools: Tools, broker: Broker, root: Path) -> None:
        self.tools = tools
        self.since_4 = tools.version.startswith("4")
        topic = unique("tools")
        self.words = {"b": broker.address, "t": topic, "g": unique("group")}
        files: dict[str, object] = {
            "deleted": {"partitions": [{"topic": topic, "partition": 0, "offset": 2}]},
            "moved": {"topics": [{"topic": topic}]},
            "plan": {"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]},
            "elsewhere": {"partitions": [{"topic": topic, "partition": 0, "replicas": [77]}]},
        }
        for name, reported in files.items():
            path = root / f"{name}.json"
            path.write_text(json.dumps({"version": 1, **reported}))  # type: ignore[dict-item]
            self.words[name] = str(path)
        self.words["scram"] = "SCRAM-SHA-256=[password=x]"
        self.words["nothing"] = str(root / "nothing.properties")
        (root / "nothing.properties").touch()

    def fill(self) -> None:
        address, topic = self.words["b"], self.words["t"]
        admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
        new = NewTopic(topic, 3, 1, config={"retention.ms": "-1"})
        admin.create_topics([new])[topic].result(DEADLINE)
        IN_PROCESS[0].write(address, topic, RECORDS)
        IN_PROCESS[0].read(address, topic, 10, group=self.words["g"])
        self.request(f"{TOPICS} --alter --topic {{t}} --partitions 4")

    def request(self, words: str) -> ToolOutput:
        main, *rest = (self.fill_in(word) for word in words.split())
        if main == "AclCommand":
            main = (P if self.since_4 else "kafka.admin.") + main
        server = ["--bootstrap-server", self.words["b"]]
        if main == CLUSTER:  # it wants its verb first
            return self.tools.run(main, *rest, *server)
        if main.endswith("ProducerPerformance") and not self.since_4:
            return self.tools.run(main, *rest, "--producer-props", f"bootstrap.servers={server[1]}")
        return self.tools.run(main, *server, *rest)

    def fill_in(self, text: str) -> str:
        for name, meant in self.words.items():
            text = text.replace(f"{{{name}}}", meant)
        return text

    def check(self, words: str, wanted: str) -> str:
        """Nothing, or how a row differs."""
        for name, meant in self.words.items():
            wanted = wanted.replace(f"{{{name}}}", re.escape(meant))
        response = self.request(words)
        if re.search(wanted, response.text.strip()):
            return ""
        return f"{words}\n  wanted {wanted}\n  got [{response.status}] {response.text[:600]}\n"


@pytest.fixture(params=TOOLS, ids=lambda tools: tools.version)
def asker(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Asker:
    tools: Tools = request.param
    tools.require()
    made = Asker(tools, broker, tmp_path)
    made.fill()
    return made


def test_a_tool_does_what_it_does_on_a_real_server(asker: Asker):
    rows = [*SINCE_4, *WORKS] if asker.since_4 else WORKS

    wrong = [difference for words, stated in rows if (difference := asker.check(words, stated))]

    assert not wrong, "\n".join(wrong)


def test_tools_of_unsupported_features_report_the_error(asker: Asker, broker: Broker):
    ours = broker.name == "trilogue"

    wrong = [asker.check(words, reported if ours else real) for words, reported, real in REFUSED]

    assert not any(wrong), "\n".join(wrong)


def test_cluster_id_and_versions_are_reported(asker: Asker):
    versions = (P if asker.since_4 else "kafka.admin.") + "BrokerApiVersionsCommand"

    assert not asker.check(f"{CLUSTER} cluster-id", r"Cluster ID: \S{22}")
    assert not asker.check(versions, r"\(id: 1 rack: null[^)]*\) -> \(\n\s+Produce\(0\): 0 to")


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_verifiable_programs_agree(address: str, topic: str, version: str):
    """kafka-verifiable-producer and -consumer: each record acknowledged is consumed, in order."""
    java = Java(version)
    server = ["--bootstrap-server", address, "--topic", topic]

    sent = java.run(P + "VerifiableProducer", *server, "--max-messages", "100", "--acks", "-1")
    group = ["--group-id", topic, "--max-messages", "100", "--reset-policy", "earliest"]
    seen = java.run(P + "VerifiableConsumer", *server, *group, "--verbose")

    acked = [line for line in parse_lines(sent) if line["name"] == "producer_send_success"]
    read = [line for line in parse_lines(seen) if line["name"] == "record_data"]
    assert [line["value"] for line in read] == [line["value"] for line in acked]
    assert len(acked) == 100
    assert any(
        line["name"] == "offsets_committed" and line["success"] for line in parse_lines(seen)
    )


def parse_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
