"""The table of APIs: the request and the response class of every API key.

A module is imported when one of its messages is first used: a tool that lists topics needs few of
them, and importing all takes a third of its run time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

# API key: Kafka's name of the API, and the module of its request and response.
NAMES: dict[int, tuple[str, str]] = {
    0: ("Produce", "produce"),
    1: ("Fetch", "fetch"),
    2: ("ListOffsets", "offsets.list_offsets"),
    3: ("Metadata", "metadata.metadata"),
    4: ("LeaderAndIsr", "internal.leader_and_isr"),
    5: ("StopReplica", "internal.stop_replica"),
    6: ("UpdateMetadata", "internal.update_metadata"),
    7: ("ControlledShutdown", "internal.controlled_shutdown"),
    8: ("OffsetCommit", "groups.committed_offsets"),
    9: ("OffsetFetch", "groups.committed_offsets"),
    10: ("FindCoordinator", "groups.classic"),
    11: ("JoinGroup", "groups.classic"),
    12: ("Heartbeat", "groups.classic"),
    13: ("LeaveGroup", "groups.classic"),
    14: ("SyncGroup", "groups.classic"),
    15: ("DescribeGroups", "groups.describe_groups"),
    16: ("ListGroups", "groups.list_groups"),
    17: ("SaslHandshake", "security.sasl"),
    18: ("ApiVersions", "metadata.api_versions"),
    19: ("CreateTopics", "topics.topics"),
    20: ("DeleteTopics", "topics.topics"),
    21: ("DeleteRecords", "topics.delete_records"),
    22: ("InitProducerId", "transactions.init_producer_id"),
    23: ("OffsetForLeaderEpoch", "offsets.leader_epochs"),
    24: ("AddPartitionsToTxn", "transactions.add_partitions"),
    25: ("AddOffsetsToTxn", "transactions.add_offsets"),
    26: ("EndTxn", "transactions.end_txn"),
    27: ("WriteTxnMarkers", "transactions.write_markers"),
    28: ("TxnOffsetCommit", "transactions.txn_offset_commit"),
    29: ("DescribeAcls", "security.acls"),
    30: ("CreateAcls", "security.acls"),
    31: ("DeleteAcls", "security.acls"),
    32: ("DescribeConfigs", "configs.configs"),
    33: ("AlterConfigs", "configs.configs"),
    34: ("AlterReplicaLogDirs", "cluster.log_dirs"),
    35: ("DescribeLogDirs", "cluster.log_dirs"),
    36: ("SaslAuthenticate", "security.sasl"),
    37: ("CreatePartitions", "topics.create_partitions"),
    38: ("CreateDelegationToken", "security.delegation_tokens"),
    39: ("RenewDelegationToken", "security.delegation_tokens"),
    40: ("ExpireDelegationToken", "security.delegation_tokens"),
    41: ("DescribeDelegationToken", "security.delegation_tokens"),
    42: ("DeleteGroups", "groups.delete_groups"),
    43: ("ElectLeaders", "cluster.elections"),
    44: ("IncrementalAlterConfigs", "configs.configs"),
    45: ("AlterPartitionReassignments", "cluster.reassignments"),
    46: ("ListPartitionReassignments", "cluster.reassignments"),
    47: ("OffsetDelete", "groups.delete_groups"),
    48: ("DescribeClientQuotas", "quotas.client_quotas"),
    49: ("AlterClientQuotas", "quotas.client_quotas"),
    50: ("DescribeUserScramCredentials", "security.scram_credentials"),
    51: ("AlterUserScramCredentials", "security.scram_credentials"),
    55: ("DescribeQuorum", "cluster.quorum"),
    57: ("UpdateFeatures", "cluster.features"),
    60: ("DescribeCluster", "metadata.describe_cluster"),
    61: ("DescribeProducers", "transactions.describe_producers"),
    64: ("UnregisterBroker", "cluster.unregister_broker"),
    65: ("DescribeTransactions", "transactions.describe_transactions"),
    66: ("ListTransactions", "transactions.list_transactions"),
    68: ("ConsumerGroupHeartbeat", "groups.consumer"),
    69: ("ConsumerGroupDescribe", "groups.describe_consumer_groups"),
    71: ("GetTelemetrySubscriptions", "cluster.telemetry"),
    72: ("PushTelemetry", "cluster.telemetry"),
    74: ("ListConfigResources", "configs.list_resources"),
    75: ("DescribeTopicPartitions", "metadata.topic_partitions"),
    76: ("ShareGroupHeartbeat", "groups.share"),
    77: ("ShareGroupDescribe", "groups.describe_share_groups"),
    78: ("ShareFetch", "share.fetch"),
    79: ("ShareAcknowledge", "share.acknowledge"),
    88: ("StreamsGroupHeartbeat", "groups.streams"),
    89: ("StreamsGroupDescribe", "groups.describe_streams_groups"),
    90: ("DescribeShareGroupOffsets", "groups.share_offsets"),
    91: ("AlterShareGroupOffsets", "groups.share_offsets"),
    92: ("DeleteShareGroupOffsets", "groups.share_offsets"),
    20001: ("CommitTransactions", "transactions.commit_transactions"),
    20002: ("DescribeCommittedBatch", "transactions.commit_transactions"),
}
OWN_KEYS = 20_000
"""API keys from here on are Trilogue's own; Kafka's are small numbers."""
_PACKAGE = __name__.rpartition(".")[0]


class _Messages(Mapping[int, tuple[type, type]]):
    """API key to (request class, response class)."""

    def __init__(self) -> None:
        self._loaded: dict[int, tuple[type, type]] = {}

    def __getitem__(self, key: int) -> tuple[type, type]:
        pair = self._loaded.get(key)
        if pair is None:
            name, module = NAMES[key]
            loaded = importlib.import_module(f"{_PACKAGE}.{module}")
            pair = getattr(loaded, f"{name}Request"), getattr(loaded, f"{name}Response")
            self._loaded[key] = pair
        return pair

    def __iter__(self) -> Iterator[int]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


MESSAGES: Mapping[int, tuple[type, type]] = _Messages()
