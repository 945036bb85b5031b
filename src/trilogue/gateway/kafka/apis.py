"""THE TABLE: every API that the Kafka gateway serves. An API without a row here is not served.

`served` is the range of versions that are decoded and answered; ApiVersions lists it.

`advertised` is false for an API that is served but left out of ApiVersions, so that clients do not
use it: telemetry, as in a Kafka without a plugin that receives metrics.

`resource` and `operation` are what the handler checks with the authorizer, through
`RequestContext.is_allowed`. The docstring of a handler names what it checks beyond that.

`frame_bytes_max` limits the size of a frame that is decoded: a large frame of many small elements
takes long. Produce has only the limit of the connection, since most of its bytes are not decoded.

`elements_max` limits how many elements (topics, partitions, members) a request may have. Most
handlers process all of them in one loop iteration, at 1 to 5 us each, and no request may hold the
loop for more than 50 ms; those with `IN_STEPS` process them in steps. A request with more elements
is not decoded: the decoder has the limit. Arrays of bare numbers (partition indexes) are cheap to
decode and are counted afterwards.

`encode_in_thread` marks APIs whose response may be large for a small request: the response of their
coroutine is encoded in the executor.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.api_table import (
    API_VERSIONS,
    GIB,
    MIB,
    ApiSpec,
    ApiTable,
    VersionedApi,
)
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsResponse

GROUP_BYTES = 36 * MIB  # subscriptions of all members of a group, and a little
TOKEN_BYTES = MIB  # requests about delegation tokens, with the names of renewers or owners
MANY, FETCHED, IN_STEPS = 25_000, 50_000, 200_000

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
TRANSACTION = ResourceKind.TRANSACTION
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
SETTINGS, CHANGE = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS
CREATE, DELETE, ALTER = Operation.CREATE, Operation.DELETE, Operation.ALTER

TABLE: tuple[ApiSpec, ...] = (
    ApiSpec(
        0,
        (0, 13),
        "produce.produce:handle_produce",
        TOPIC,
        WRITE,
        frame_bytes_max=GIB,
        elements_max=MANY,
    ),
    ApiSpec(1, (0, 18), "fetch.fetch:handle_fetch", TOPIC, READ, elements_max=FETCHED),
    ApiSpec(
        2,
        (0, 11),
        "offsets.list_offsets:handle_list_offsets",
        TOPIC,
        DESCRIBE,
        elements_max=IN_STEPS,
    ),
    ApiSpec(3, (0, 13), "metadata.metadata:handle_metadata", TOPIC, DESCRIBE, elements_max=MANY),
    ApiSpec(
        8, (0, 10), "groups.committed_offsets:handle_offset_commit", GROUP, READ, elements_max=MANY
    ),
    ApiSpec(
        9,
        (0, 10),
        "groups.committed_offsets:handle_offset_fetch",
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(
        10, (0, 6), "groups.classic:handle_find_coordinator", GROUP, DESCRIBE, elements_max=FETCHED
    ),
    ApiSpec(
        11,
        (0, 9),
        "groups.classic:handle_join_group",
        GROUP,
        READ,
        frame_bytes_max=GROUP_BYTES,
        elements_max=IN_STEPS,
    ),
    ApiSpec(12, (0, 4), "groups.classic:handle_heartbeat", GROUP, READ),
    ApiSpec(13, (0, 5), "groups.classic:handle_leave_group", GROUP, READ),
    ApiSpec(
        14,
        (0, 5),
        "groups.classic:handle_sync_group",
        GROUP,
        READ,
        frame_bytes_max=GROUP_BYTES,
        elements_max=IN_STEPS,
    ),
    ApiSpec(
        15,
        (0, 6),
        "groups.describe_groups:handle_describe_groups",
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(
        16,
        (0, 5),
        "groups.list_groups:handle_list_groups",
        CLUSTER,
        DESCRIBE,
        encode_in_thread=True,
    ),
    # These three come before the login, so their handlers check no access.
    ApiSpec(17, (0, 1), "security.sasl:handle_sasl_handshake", CLUSTER, DESCRIBE),
    ApiSpec(36, (0, 2), "security.sasl:handle_sasl_authenticate", CLUSTER, DESCRIBE),
    ApiSpec(18, (0, 4), "metadata.api_versions:handle_api_versions", CLUSTER, DESCRIBE),
    ApiSpec(19, (0, 7), "topics.topics:handle_create_topics", TOPIC, CREATE, elements_max=IN_STEPS),
    ApiSpec(20, (0, 6), "topics.topics:handle_delete_topics", TOPIC, DELETE, elements_max=IN_STEPS),
    ApiSpec(21, (0, 2), "topics.delete_records:handle_delete_records", TOPIC, DELETE),
    ApiSpec(
        22,
        (0, 5),
        "transactions.init_producer_id:handle_init_producer_id",
        CLUSTER,
        Operation.IDEMPOTENT_WRITE,
    ),
    ApiSpec(
        23,
        (0, 4),
        "offsets.leader_epochs:handle_offset_for_leader_epoch",
        TOPIC,
        DESCRIBE,
        elements_max=IN_STEPS,
    ),
    ApiSpec(
        24,
        (0, 5),
        "transactions.add_partitions:handle_add_partitions",
        TRANSACTION,
        WRITE,
        elements_max=MANY,
    ),
    ApiSpec(25, (0, 4), "transactions.add_offsets:handle_add_offsets", TRANSACTION, WRITE),
    ApiSpec(26, (0, 5), "transactions.end_txn:handle_end_txn", TRANSACTION, WRITE),
    ApiSpec(27, (0, 1), "transactions.write_markers:handle_write_markers", CLUSTER, ALTER),
    ApiSpec(
        28,
        (0, 5),
        "transactions.txn_offset_commit:handle_txn_offset_commit",
        TRANSACTION,
        WRITE,
        elements_max=MANY,
    ),
    ApiSpec(29, (0, 3), "security.acls:handle_describe_acls", CLUSTER, DESCRIBE),
    ApiSpec(30, (0, 3), "security.acls:handle_create_acls", CLUSTER, ALTER),
    ApiSpec(31, (0, 3), "security.acls:handle_delete_acls", CLUSTER, ALTER),
    ApiSpec(
        32,
        (0, 4),
        "configs.configs:handle_describe_configs",
        TOPIC,
        SETTINGS,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(33, (0, 2), "configs.configs:handle_alter_configs", TOPIC, CHANGE, elements_max=MANY),
    ApiSpec(34, (0, 2), "cluster.log_dirs:handle_alter_replica_log_dirs", CLUSTER, ALTER),
    ApiSpec(
        35,
        (0, 5),
        "cluster.log_dirs:handle_describe_log_dirs",
        CLUSTER,
        DESCRIBE,
        encode_in_thread=True,
    ),
    ApiSpec(
        37,
        (0, 3),
        "topics.create_partitions:handle_create_partitions",
        TOPIC,
        ALTER,
        elements_max=IN_STEPS,
    ),
    ApiSpec(
        38,
        (0, 3),
        "security.delegation_tokens:handle_create_delegation_token",
        ResourceKind.USER,
        Operation.CREATE_TOKENS,
        frame_bytes_max=TOKEN_BYTES,
        elements_max=1_000,
    ),
    ApiSpec(
        39,
        (0, 2),
        "security.delegation_tokens:handle_renew_delegation_token",
        ResourceKind.DELEGATION_TOKEN,
        ALTER,
        frame_bytes_max=TOKEN_BYTES,
    ),
    ApiSpec(
        40,
        (0, 2),
        "security.delegation_tokens:handle_expire_delegation_token",
        ResourceKind.DELEGATION_TOKEN,
        DELETE,
        frame_bytes_max=TOKEN_BYTES,
    ),
    ApiSpec(
        41,
        (0, 3),
        "security.delegation_tokens:handle_describe_delegation_token",
        ResourceKind.DELEGATION_TOKEN,
        DESCRIBE,
        frame_bytes_max=TOKEN_BYTES,
        elements_max=1_000,
        encode_in_thread=True,
    ),
    ApiSpec(
        42, (0, 2), "groups.delete_groups:handle_delete_groups", GROUP, DELETE, elements_max=FETCHED
    ),
    ApiSpec(43, (0, 2), "cluster.elections:handle_elect_leaders", CLUSTER, ALTER),
    ApiSpec(
        44,
        (0, 1),
        "configs.configs:handle_incremental_alter_configs",
        TOPIC,
        CHANGE,
        elements_max=MANY,
    ),
    ApiSpec(
        45, (0, 1), "cluster.reassignments:handle_alter_partition_reassignments", CLUSTER, ALTER
    ),
    ApiSpec(
        46, (0, 0), "cluster.reassignments:handle_list_partition_reassignments", CLUSTER, DESCRIBE
    ),
    ApiSpec(47, (0, 0), "groups.delete_groups:handle_offset_delete", GROUP, DELETE),
    ApiSpec(
        48,
        (0, 1),
        "quotas.describe_quotas:handle_describe_client_quotas",
        CLUSTER,
        Operation.DESCRIBE_SETTINGS,
        encode_in_thread=True,
    ),
    ApiSpec(
        49,
        (0, 1),
        "quotas.alter_quotas:handle_alter_client_quotas",
        CLUSTER,
        Operation.ALTER_SETTINGS,
    ),
    ApiSpec(
        50,
        (0, 0),
        "security.scram_credentials:handle_describe_user_scram_credentials",
        CLUSTER,
        DESCRIBE,
    ),
    ApiSpec(
        51, (0, 0), "security.scram_credentials:handle_alter_user_scram_credentials", CLUSTER, ALTER
    ),
    ApiSpec(55, (0, 2), "cluster.quorum:handle_describe_quorum", CLUSTER, DESCRIBE),
    ApiSpec(57, (0, 2), "cluster.features:handle_update_features", CLUSTER, ALTER),
    ApiSpec(60, (0, 2), "metadata.describe_cluster:handle_describe_cluster", CLUSTER, DESCRIBE),
    ApiSpec(
        61,
        (0, 0),
        "transactions.describe_producers:handle_describe_producers",
        TOPIC,
        READ,
        encode_in_thread=True,
    ),
    ApiSpec(64, (0, 0), "cluster.unregister_broker:handle_unregister_broker", CLUSTER, ALTER),
    ApiSpec(
        65,
        (0, 0),
        "transactions.describe_transactions:handle_describe_transactions",
        TRANSACTION,
        DESCRIBE,
    ),
    ApiSpec(
        66, (0, 2), "transactions.list_transactions:handle_list_transactions", TRANSACTION, DESCRIBE
    ),
    ApiSpec(
        68,
        (0, 1),
        "groups.consumer:handle_consumer_group_heartbeat",
        GROUP,
        READ,
        elements_max=MANY,
    ),
    ApiSpec(
        69,
        (0, 1),
        "groups.describe_consumer_groups:handle_consumer_group_describe",
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(
        71,
        (0, 0),
        "cluster.telemetry:handle_get_telemetry_subscriptions",
        CLUSTER,
        DESCRIBE,
        advertised=False,
    ),
    ApiSpec(
        72, (0, 0), "cluster.telemetry:handle_push_telemetry", CLUSTER, DESCRIBE, advertised=False
    ),
    ApiSpec(
        74,
        (0, 1),
        "configs.list_resources:handle_list_config_resources",
        CLUSTER,
        Operation.DESCRIBE_SETTINGS,
    ),
    ApiSpec(
        75,
        (0, 0),
        "metadata.topic_partitions:handle_describe_topic_partitions",
        TOPIC,
        DESCRIBE,
        elements_max=FETCHED,
    ),
    ApiSpec(
        76, (1, 1), "groups.share:handle_share_group_heartbeat", GROUP, READ, elements_max=MANY
    ),
    ApiSpec(
        77,
        (1, 1),
        "groups.describe_share_groups:handle_share_group_describe",
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(78, (1, 2), "share.fetch:handle_share_fetch", GROUP, READ, elements_max=FETCHED),
    ApiSpec(
        79, (1, 2), "share.acknowledge:handle_share_acknowledge", GROUP, READ, elements_max=FETCHED
    ),
    ApiSpec(
        88,
        (0, 0),
        "groups.streams:handle_streams_group_heartbeat",
        GROUP,
        READ,
        elements_max=MANY,
    ),
    ApiSpec(
        89,
        (0, 0),
        "groups.describe_streams_groups:handle_streams_group_describe",
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(
        90,
        (0, 1),
        "groups.share_offsets:handle_describe_share_group_offsets",
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    ApiSpec(
        91,
        (0, 0),
        "groups.share_offsets:handle_alter_share_group_offsets",
        GROUP,
        READ,
        elements_max=FETCHED,
    ),
    ApiSpec(
        92,
        (0, 0),
        "groups.share_offsets:handle_delete_share_group_offsets",
        GROUP,
        DELETE,
        elements_max=FETCHED,
    ),
    ApiSpec(
        20_001,
        (0, 0),
        "transactions.commit_transactions:handle_commit_transactions",
        TRANSACTION,
        WRITE,
    ),
    ApiSpec(
        20_002,
        (0, 0),
        "transactions.commit_transactions:handle_describe_committed_batch",
        TRANSACTION,
        DESCRIBE,
    ),
)

PUBLIC = ApiTable(TABLE)
find_api = PUBLIC.find_api
advertised_versions = PUBLIC.advertised_versions


def api_versions_v0() -> VersionedApi:
    """Return ApiVersions v0, the response to a version of ApiVersions that is not served."""
    api = find_api(API_VERSIONS << 16)
    assert api is not None
    return api


def unsupported_version() -> ApiVersionsResponse:
    """Error 35 with the versions of ApiVersions itself (KIP-511), for a second request."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[version for version in advertised_versions() if version.api_key == API_VERSIONS],
    )
