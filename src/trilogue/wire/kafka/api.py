"""The table of messages: every API spoken here, as its request and its response.

A message's module is loaded when it is first asked for: a tool that lists topics needs few of them,
and reading the declarations of all takes a third of its time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

# API key: Kafka's name, the module of its request and that of its response.
NAMES: dict[int, tuple[str, str, str]] = {
    0: ("Produce", "produce", "produce"),
    1: ("Fetch", "fetch", "fetch"),
    2: ("ListOffsets", "list_offsets", "list_offsets"),
    3: ("Metadata", "metadata", "metadata"),
    8: ("OffsetCommit", "offsets", "offsets"),
    9: ("OffsetFetch", "offsets", "offsets"),
    10: ("FindCoordinator", "groups", "groups"),
    11: ("JoinGroup", "groups", "groups"),
    12: ("Heartbeat", "groups", "groups"),
    13: ("LeaveGroup", "groups", "groups"),
    14: ("SyncGroup", "groups", "groups"),
    15: ("DescribeGroups", "describe_groups", "describe_groups"),
    16: ("ListGroups", "list_groups", "list_groups"),
    18: ("ApiVersions", "api_versions", "api_versions"),
    19: ("CreateTopics", "topics", "topics"),
    20: ("DeleteTopics", "topics", "topics"),
    21: ("DeleteRecords", "delete_records", "delete_records"),
    22: ("InitProducerId", "transactions", "transactions"),
    23: ("OffsetForLeaderEpoch", "leader_epochs", "leader_epochs"),
    29: ("DescribeAcls", "acls", "acls"),
    30: ("CreateAcls", "acls", "acls"),
    31: ("DeleteAcls", "acls", "acls"),
    32: ("DescribeConfigs", "configs", "configs"),
    33: ("AlterConfigs", "configs", "configs"),
    34: ("AlterReplicaLogDirs", "log_dirs", "log_dirs"),
    35: ("DescribeLogDirs", "log_dirs", "log_dirs"),
    37: ("CreatePartitions", "partitions", "partitions"),
    42: ("DeleteGroups", "delete_groups", "delete_groups"),
    43: ("ElectLeaders", "elections", "elections"),
    44: ("IncrementalAlterConfigs", "incremental_configs", "incremental_configs"),
    45: ("AlterPartitionReassignments", "reassignments", "reassignments"),
    46: ("ListPartitionReassignments", "reassignments", "reassignments"),
    47: ("OffsetDelete", "delete_groups", "delete_groups"),
    48: ("DescribeClientQuotas", "describe_quotas", "describe_quotas"),
    49: ("AlterClientQuotas", "alter_quotas", "altered_quotas"),
    50: ("DescribeUserScramCredentials", "scram", "scram"),
    51: ("AlterUserScramCredentials", "scram", "scram"),
    55: ("DescribeQuorum", "quorum", "described_quorum"),
    57: ("UpdateFeatures", "features", "features"),
    60: ("DescribeCluster", "cluster", "cluster"),
    61: ("DescribeProducers", "describe_producers", "describe_producers"),
    64: ("UnregisterBroker", "nodes", "nodes"),
    65: ("DescribeTransactions", "describe_transactions", "describe_transactions"),
    66: ("ListTransactions", "list_transactions", "list_transactions"),
    68: ("ConsumerGroupHeartbeat", "consumer_groups", "consumer_groups"),
    69: ("ConsumerGroupDescribe", "describe_consumer_groups", "describe_consumer_groups"),
    71: ("GetTelemetrySubscriptions", "telemetry", "telemetry"),
    72: ("PushTelemetry", "telemetry", "telemetry"),
    74: ("ListConfigResources", "config_resources", "config_resources"),
    75: ("DescribeTopicPartitions", "topic_partitions", "topic_partitions"),
}
_PACKAGE = __name__.rpartition(".")[0]


class _Messages(Mapping[int, tuple[type, type]]):
    """API key to (request class, response class)."""

    def __init__(self) -> None:
        self._loaded: dict[int, tuple[type, type]] = {}

    def __getitem__(self, key: int) -> tuple[type, type]:
        pair = self._loaded.get(key)
        if pair is None:
            name, *modules = NAMES[key]
            request, response = (importlib.import_module(f"{_PACKAGE}.{one}") for one in modules)
            pair = getattr(request, f"{name}Request"), getattr(response, f"{name}Response")
            self._loaded[key] = pair
        return pair

    def __iter__(self) -> Iterator[int]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


MESSAGES: Mapping[int, tuple[type, type]] = _Messages()
