"""The table of messages: every API spoken here, as its request and its response."""

from __future__ import annotations

from trilogue.wire.kafka.alter_quotas import AlterClientQuotasRequest
from trilogue.wire.kafka.altered_quotas import AlterClientQuotasResponse
from trilogue.wire.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trilogue.wire.kafka.cluster import DescribeClusterRequest, DescribeClusterResponse
from trilogue.wire.kafka.config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from trilogue.wire.kafka.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from trilogue.wire.kafka.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from trilogue.wire.kafka.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from trilogue.wire.kafka.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from trilogue.wire.kafka.describe_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from trilogue.wire.kafka.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from trilogue.wire.kafka.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from trilogue.wire.kafka.describe_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from trilogue.wire.kafka.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from trilogue.wire.kafka.elections import ElectLeadersRequest, ElectLeadersResponse
from trilogue.wire.kafka.fetch import FetchRequest, FetchResponse
from trilogue.wire.kafka.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from trilogue.wire.kafka.incremental_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from trilogue.wire.kafka.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from trilogue.wire.kafka.list_groups import ListGroupsRequest, ListGroupsResponse
from trilogue.wire.kafka.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from trilogue.wire.kafka.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from trilogue.wire.kafka.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from trilogue.wire.kafka.metadata import MetadataRequest, MetadataResponse
from trilogue.wire.kafka.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from trilogue.wire.kafka.partitions import CreatePartitionsRequest, CreatePartitionsResponse
from trilogue.wire.kafka.produce import ProduceRequest, ProduceResponse
from trilogue.wire.kafka.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from trilogue.wire.kafka.schema import table
from trilogue.wire.kafka.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from trilogue.wire.kafka.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from trilogue.wire.kafka.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from trilogue.wire.kafka.transactions import InitProducerIdRequest, InitProducerIdResponse

PAIRS: tuple[tuple[type, type], ...] = (
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (MetadataRequest, MetadataResponse),
    (OffsetCommitRequest, OffsetCommitResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (JoinGroupRequest, JoinGroupResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (DeleteRecordsRequest, DeleteRecordsResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (AlterConfigsRequest, AlterConfigsResponse),
    (CreatePartitionsRequest, CreatePartitionsResponse),
    (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (OffsetDeleteRequest, OffsetDeleteResponse),
    (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    (DescribeClusterRequest, DescribeClusterResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    (DescribeLogDirsRequest, DescribeLogDirsResponse),
    (ElectLeadersRequest, ElectLeadersResponse),
    (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    (DescribeProducersRequest, DescribeProducersResponse),
    (DescribeTransactionsRequest, DescribeTransactionsResponse),
    (ListTransactionsRequest, ListTransactionsResponse),
    (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    (AlterClientQuotasRequest, AlterClientQuotasResponse),
    (GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse),
    (PushTelemetryRequest, PushTelemetryResponse),
    (ListConfigResourcesRequest, ListConfigResourcesResponse),
)

MESSAGES: dict[int, tuple[type, type]] = {table(pair[0]).key: pair for pair in PAIRS}
"""API key to (request class, response class)."""
