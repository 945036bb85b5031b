"""The table of messages: every API spoken here, as its request and its response."""

from __future__ import annotations

from trilogue.wire.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trilogue.wire.kafka.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from trilogue.wire.kafka.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
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
from trilogue.wire.kafka.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from trilogue.wire.kafka.metadata import MetadataRequest, MetadataResponse
from trilogue.wire.kafka.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from trilogue.wire.kafka.partitions import CreatePartitionsRequest, CreatePartitionsResponse
from trilogue.wire.kafka.produce import ProduceRequest, ProduceResponse
from trilogue.wire.kafka.schema import table
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
)

MESSAGES: dict[int, tuple[type, type]] = {table(pair[0]).key: pair for pair in PAIRS}
"""API key to (request class, response class)."""
