"""Requests between brokers, in every version, to Trilogue's internal listener and a real Kafka.

`python -m tools.kafka_answers.internal` sends each case to a Kafka 3.9.1 with ZooKeeper and to
Trilogue, and writes internal.json beside this module; `--ours` renews Trilogue's part alone. The
test tests/conformance/kafka/internal/test_internal.py repeats it for Trilogue; the page
docs/reference/kafka-versions.md shows it. An answer is the list of its error codes, `N listed` for
the partitions of ControlledShutdown, `closed` or `silence`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.asking import Asker
from tests.server import Server, start_server

from tools.kafka_answers.versions import newest, write_json
from tools.servers.zookeeper import ZooKeeperKafka
from trilogue.wire.kafka.internal.controlled_shutdown import ControlledShutdownRequest
from trilogue.wire.kafka.internal.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from trilogue.wire.kafka.internal.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from trilogue.wire.kafka.internal.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic
from trilogue.wire.kafka.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from trilogue.wire.kafka.topics.topics import CreatableTopic, CreateTopicsRequest
from trilogue.wire.kafka.transactions.write_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

RECORDED = Path(__file__).with_name("internal.json")
REAL, OURS = "kafka 3.9.1", "trilogue"
BROKER, PASSWORD = "node-2", "correct horse, battery"
OTHER, FUTURE = 99, 1_000_000
MISSING = "missing"
Answers = dict[str, dict[str, list[str]]]
"""API key, as JSON has it, to case, to the answer of each version from 0 ("" without the case)."""
Case = tuple[int, str, Callable[[int], object | None]]
"""API key, the case, and what makes the request of a version; None without the case."""


class Target(NamedTuple):
    """A server: its internal listener, and the epochs that valid requests have."""

    connect: Callable[[], Asker]
    node_id: int
    controller_epoch: int
    broker_epoch: int
    leader_epoch: int  # of a new topic


class Topic(NamedTuple):
    """A topic with one partition."""

    name: str
    topic_id: bytes = bytes(16)


@dataclasses.dataclass
class Epochs:
    """The epochs of one request, of the controller and of the broker it is for."""

    controller: int
    broker: int


class Walk:
    """Sends all cases to one server. Each topic of a case and version is new."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._numbers = itertools.count(1)
        self._asker = target.connect()

    def run(self) -> Answers:
        """Return the answers of all cases."""
        found: Answers = {}
        for key, case, build in self._cases():
            rows = found.setdefault(str(key), {}).setdefault(case, [])
            for version in range(newest(key) + 1):
                request = build(version)
                rows.append("" if request is None else self._send(request, version))
        self._asker.close()
        return found

    def _send(self, request: object, version: int) -> str:
        try:
            return describe(self._asker.request(request, version))
        except TimeoutError:
            answer = "silence"
        except OSError:
            answer = "closed"
        self._asker.close()
        self._asker = self.target.connect()
        return answer

    def _cases(self) -> Iterator[Case]:
        yield from self._leader_cases()
        yield from self._stop_cases()
        yield from self._metadata_cases()
        yield from self._shutdown_cases()
        for commit in (True, False):

            def marker(version: int, *, commit: bool = commit) -> object | None:
                return None if version > 1 else write_marker(self.make_topic(), commit=commit)

            yield 27, f"{'commit' if commit else 'abort'}, no transaction is open", marker

    @property
    def _epochs(self) -> Epochs:
        return Epochs(self.target.controller_epoch, self.target.broker_epoch)

    def _senders(self, broker_epoch_since: int) -> Iterator[tuple[str, Epochs, int]]:
        """Iterate over requests with other epochs: the case, the epochs, the first version."""
        controller, broker = self.target.controller_epoch, self.target.broker_epoch
        yield "epoch of an older controller", Epochs(controller - 1, broker), 0
        yield "older epoch of the broker", Epochs(controller, broker - 1), broker_epoch_since
        yield "later epoch of the broker", Epochs(controller, broker + FUTURE), broker_epoch_since

    def _leader_cases(self) -> Iterator[Case]:
        node, epoch, epochs = self.target.node_id, self.target.leader_epoch, self._epochs

        def leaders(
            leader: int, leader_epoch: int, replicas: list[int], sender: Epochs = epochs
        ) -> Callable[[int], object]:
            return lambda _: leader_and_isr(
                self.make_topic(), leader, leader_epoch, replicas, sender
            )

        yield 4, "this broker leads, in its epoch", leaders(node, epoch, [node])
        yield 4, "this broker leads, in a later epoch", leaders(node, epoch + 1, [node])
        yield 4, "this broker leads, in an earlier epoch", leaders(node, epoch - 1, [node])
        yield 4, "another broker leads", leaders(OTHER, epoch + 1, [node, OTHER])
        yield 4, "replicas without this broker", leaders(OTHER, epoch + 1, [OTHER])
        yield (
            4,
            "a partition that does not exist, of other brokers",
            lambda _: leader_and_isr(Topic(MISSING), OTHER, 0, [OTHER], epochs),
        )

        def other_id(_version: int) -> object:
            topic = self.make_topic()._replace(topic_id=b"another topic id")
            return leader_and_isr(topic, node, epoch + 1, [node], epochs)

        yield 4, "another topic id", since_version(5, other_id)
        for case, sender, first in self._senders(2):
            yield 4, case, since_version(first, leaders(node, epoch, [node], sender))

    def _stop_cases(self) -> Iterator[Case]:
        epoch, epochs = self.target.leader_epoch, self._epochs

        def stop(
            *, delete: bool, sender: Epochs = epochs, name: str = ""
        ) -> Callable[[int], object]:
            return lambda _: stop_replica(
                Topic(name) if name else self.make_topic(),
                sender,
                delete=delete,
                leader_epoch=epoch,
            )

        yield 5, "a partition of this broker", stop(delete=False)
        yield 5, "the same, to be deleted", stop(delete=True)
        yield 5, "an earlier epoch of the leader", since_version(3, self._stop_in_earlier_epoch)
        yield 5, "a partition that does not exist", stop(delete=True, name=MISSING)
        for case, sender, first in self._senders(1):
            yield 5, case, since_version(first, stop(delete=True, sender=sender))

    def _metadata_cases(self) -> Iterator[Case]:
        node, epoch = self.target.node_id, self.target.leader_epoch

        def metadata(sender: Epochs) -> Callable[[int], object]:
            return lambda version: update_metadata(self.make_topic(), node, epoch, sender, version)

        yield 6, "this broker leads, in its epoch", metadata(self._epochs)
        for case, sender, first in self._senders(5):
            yield 6, case, since_version(first, metadata(sender))

    def _shutdown_cases(self) -> Iterator[Case]:
        node, epoch = self.target.node_id, self.target.broker_epoch

        def shutdown(broker: int, broker_epoch: int) -> Callable[[int], object]:
            return lambda _: ControlledShutdownRequest(broker_id=broker, broker_epoch=broker_epoch)

        yield 7, "another broker", shutdown(OTHER, epoch)
        for case, sender, first in self._senders(2):
            if sender.broker != epoch:
                yield 7, case, since_version(first, shutdown(node, sender.broker))
        yield 7, "this broker", shutdown(node, epoch)

    def _stop_in_earlier_epoch(self, _version: int) -> object:
        """Return the request, after a real Kafka was given a later epoch: its first one is 0."""
        target, topic = self.target, self.make_topic()
        node, epoch, epochs = target.node_id, target.leader_epoch, self._epochs
        self._asker.request(leader_and_isr(topic, node, epoch + 1, [node], epochs), 7)
        earlier = epoch - 1 if epoch else 0
        return stop_replica(topic, epochs, delete=True, leader_epoch=earlier)

    def make_topic(self) -> Topic:
        """Create a topic and return its id."""
        name = f"walk-{next(self._numbers)}"
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        self._asker.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        return Topic(name, self._asker.request(request, 12).topics[0].topic_id)


def since_version(
    first: int, build: Callable[[int], object | None]
) -> Callable[[int], object | None]:
    """Leave out the versions before one that has the field."""
    return lambda version: None if version < first else build(version)


def leader_and_isr(
    topic: Topic, leader: int, leader_epoch: int, replicas: list[int], sender: Epochs
) -> LeaderAndIsrRequest:
    """Return the request for one partition, with the fields of all versions."""
    state = LeaderAndIsrPartitionState(
        topic_name=topic.name,
        controller_epoch=sender.controller,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[leader],
        replicas=replicas,
    )
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=sender.controller,
        broker_epoch=sender.broker,
        ungrouped_partition_states=[state],
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=topic.name, topic_id=topic.topic_id, partition_states=[state]
            )
        ],
    )


def stop_replica(
    topic: Topic, sender: Epochs, *, delete: bool, leader_epoch: int
) -> StopReplicaRequest:
    """Return the request for one partition, with the fields of all versions."""
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=sender.controller,
        broker_epoch=sender.broker,
        delete_partitions=delete,
        ungrouped_partitions=[StopReplicaPartitionV0(topic_name=topic.name)],
        topics=[StopReplicaTopicV1(name=topic.name, partition_indexes=[0])],
        topic_states=[
            StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=[
                    StopReplicaPartitionState(leader_epoch=leader_epoch, delete_partition=delete)
                ],
            )
        ],
    )


def update_metadata(
    topic: Topic, node: int, leader_epoch: int, sender: Epochs, version: int
) -> UpdateMetadataRequest:
    """Return the request for one partition and one broker, with the fields of all versions."""
    state = UpdateMetadataPartitionState(
        topic_name=topic.name,
        controller_epoch=sender.controller,
        leader=node,
        leader_epoch=leader_epoch,
        isr=[node],
        replicas=[node],
    )
    listener = "PLAINTEXT" if version >= 3 else ""
    endpoint = UpdateMetadataEndpoint(port=9092, host="127.0.0.1", listener=listener)
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=sender.controller,
        broker_epoch=sender.broker,
        ungrouped_partition_states=[state],
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=topic.name, topic_id=topic.topic_id, partition_states=[state]
            )
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=node, v0_host="127.0.0.1", v0_port=9092, endpoints=[endpoint], rack=""
            )
        ],
    )


def write_marker(topic: Topic, *, commit: bool) -> WriteTxnMarkersRequest:
    """Return the request for a producer that has written nothing."""
    written = WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])
    marker = WritableTxnMarker(producer_id=77, transaction_result=commit, topics=[written])
    return WriteTxnMarkersRequest(markers=[marker])


def describe(response: Any) -> str:
    """Return the error codes of a response, and how many partitions it lists."""
    codes = " ".join(map(str, _error_codes(response)))
    remaining = getattr(response, "remaining_partitions", None)
    return codes if remaining is None else f"{codes}, {'some' if remaining else 'none'} listed"


def _error_codes(message: Any) -> Iterator[int]:
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield int(value)
        for each in value if isinstance(value, list) else []:
            if dataclasses.is_dataclass(each):
                yield from _error_codes(each)


def log_in(asker: Asker) -> Asker:
    """Log in by PLAIN as a broker of the cluster."""
    asker.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{BROKER}\0{PASSWORD}".encode()
    assert not asker.request(SaslAuthenticateRequest(auth_bytes=token), 2).error_code
    return asker


@contextmanager
def start_internal(root: Path, **settings: object) -> Iterator[Server]:
    """Run a Trilogue with an internal listener at which BROKER logs in by SASL."""
    users = root / "users"
    if not users.exists():
        users.write_text(f"{BROKER}:{PASSWORD}\nstranger:{PASSWORD}\n")
        users.chmod(0o600)
    with start_server(
        root / "data",
        listen=dict.fromkeys(
            ("kafka", "internal", "pulsar", "tubemq-master", "tubemq-broker"), "127.0.0.1:0"
        ),
        settings={
            "cluster.principals": f"User:{BROKER}",
            "cluster.security-protocol": "sasl",
            "access.users-file": users,
            **settings,
        },
    ) as server:
        yield server  # fmt: skip


def walk_trilogue(root: Path) -> Answers:
    """Send all cases to a new Trilogue, in its second start: its epochs are 2."""
    with start_internal(root) as server:
        server.stop()
    with start_internal(root) as server:
        connect = lambda: log_in(Asker(server.doors["internal"]))  # noqa: E731
        return Walk(Target(connect, 1, 2, 2, 2)).run()


def walk_kafka(root: Path) -> Answers:
    """Send all cases to a new Kafka with ZooKeeper."""
    kafka = ZooKeeperKafka(root)
    kafka.start()
    try:
        connect = lambda: Asker(kafka.address, timeout=5.0)  # noqa: E731
        return Walk(Target(connect, 1, 1, kafka.broker_epoch, 0)).run()
    finally:
        kafka.stop()


def read_recorded() -> dict[str, Answers]:
    """Return the recorded answers of each server."""
    recorded: dict[str, Answers] = json.loads(RECORDED.read_text())
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true", help="renew Trilogue's part alone")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        real = read_recorded()[REAL] if chosen.ours else walk_kafka(Path(root) / "kafka")
        write_json(RECORDED, {OURS: walk_trilogue(Path(root)), REAL: real})


if __name__ == "__main__":
    main()
