"""Settings of the suites' servers beside the port: as in the clusters that they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.kafka_suites.golang import PROXIED


@dataclass(frozen=True)
class Cluster:
    """Topics make themselves if `auto_create`, of `partitions`; the others are further settings."""

    partitions: int = 1
    auto_create: bool = True
    ours: Mapping[str, object] = field(default_factory=dict)
    real: Mapping[str, object] = field(default_factory=dict)


CLUSTERS = {
    "aiokafka": Cluster(2),
    "kafka-python": Cluster(4),
    "librdkafka": Cluster(  # some create copies; others log in again and again
        4,
        ours={"kafka.accept-replication": "true", "kafka.sasl-session": "10s"},
        real={"connections.max.reauth.ms": 10_000},
    ),
    "kafka-go": Cluster(  # which compares the name
        ours={"topics.max-entry": "16MiB", "advertise.kafka": "localhost:9092"},
        real={
            "message.max.bytes": 16 << 20,  # 3.9 takes that much for each of its 10 coordinators
            "advertised.listeners": "PLAINTEXT://localhost:9092",
        },
    ),
    "kafkajs": Cluster(  # which compares the name
        ours={"advertise.kafka": "localhost:9092"},
        real={"advertised.listeners": "PLAINTEXT://localhost:9092"},
    ),
    "rskafka": Cluster(auto_create=False),
    "sarama": Cluster(
        auto_create=False,
        ours={"advertise.kafka": PROXIED},
        real={"advertised.listeners": f"PLAINTEXT://{PROXIED}"},
    ),
}


def cluster_of(suite: str) -> Cluster:
    return CLUSTERS.get(suite, Cluster())
