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
from trilogue.gateway.kafka.api_table import make_spec as _spec
from trilogue.gateway.kafka.cluster import (
    elections,
    features,
    log_dirs,
    quorum,
    reassignments,
    telemetry,
    unregister_broker,
)
from trilogue.gateway.kafka.configs import configs, list_resources
from trilogue.gateway.kafka.fetch import fetch
from trilogue.gateway.kafka.groups import (
    classic,
    committed_offsets,
    consumer,
    delete_groups,
    describe_consumer_groups,
    describe_groups,
    list_groups,
)
from trilogue.gateway.kafka.metadata import (
    api_versions,
    describe_cluster,
    metadata,
    topic_partitions,
)
from trilogue.gateway.kafka.offsets import leader_epochs, list_offsets
from trilogue.gateway.kafka.produce import produce
from trilogue.gateway.kafka.quotas import alter_quotas, describe_quotas
from trilogue.gateway.kafka.security import acls, delegation_tokens, sasl, scram
from trilogue.gateway.kafka.topics import create_partitions, delete_records, topics
from trilogue.gateway.kafka.transactions import (
    add_offsets,
    add_partitions,
    commit_transactions,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_markers,
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
    _spec(0, (0, 13), produce.handle_produce, TOPIC, WRITE, frame_bytes_max=GIB, elements_max=MANY),
    _spec(1, (0, 18), fetch.handle_fetch, TOPIC, READ, elements_max=FETCHED),
    _spec(2, (0, 11), list_offsets.handle_list_offsets, TOPIC, DESCRIBE, elements_max=IN_STEPS),
    _spec(3, (0, 13), metadata.handle_metadata, TOPIC, DESCRIBE, elements_max=MANY),
    _spec(8, (0, 10), committed_offsets.handle_offset_commit, GROUP, READ, elements_max=MANY),
    _spec(
        9,
        (0, 10),
        committed_offsets.handle_offset_fetch,
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    _spec(10, (0, 6), classic.handle_find_coordinator, GROUP, DESCRIBE, elements_max=FETCHED),
    _spec(
        11,
        (0, 9),
        classic.handle_join_group,
        GROUP,
        READ,
        frame_bytes_max=GROUP_BYTES,
        elements_max=IN_STEPS,
    ),
    _spec(12, (0, 4), classic.handle_heartbeat, GROUP, READ),
    _spec(13, (0, 5), classic.handle_leave_group, GROUP, READ),
    _spec(
        14,
        (0, 5),
        classic.handle_sync_group,
        GROUP,
        READ,
        frame_bytes_max=GROUP_BYTES,
        elements_max=IN_STEPS,
    ),
    _spec(
        15,
        (0, 6),
        describe_groups.handle_describe_groups,
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    _spec(16, (0, 5), list_groups.handle_list_groups, CLUSTER, DESCRIBE, encode_in_thread=True),
    # These three come before the login, so their handlers check no access.
    _spec(17, (0, 1), sasl.handle_sasl_handshake, CLUSTER, DESCRIBE),
    _spec(36, (0, 2), sasl.handle_sasl_authenticate, CLUSTER, DESCRIBE),
    _spec(18, (0, 4), api_versions.handle_api_versions, CLUSTER, DESCRIBE),
    _spec(19, (0, 7), topics.handle_create_topics, TOPIC, CREATE, elements_max=IN_STEPS),
    _spec(20, (0, 6), topics.handle_delete_topics, TOPIC, DELETE, elements_max=IN_STEPS),
    _spec(21, (0, 2), delete_records.handle_delete_records, TOPIC, DELETE),
    _spec(
        22, (0, 5), init_producer_id.handle_init_producer_id, CLUSTER, Operation.IDEMPOTENT_WRITE
    ),
    _spec(
        23,
        (0, 4),
        leader_epochs.handle_offset_for_leader_epoch,
        TOPIC,
        DESCRIBE,
        elements_max=IN_STEPS,
    ),
    _spec(24, (0, 5), add_partitions.handle_add_partitions, TRANSACTION, WRITE, elements_max=MANY),
    _spec(25, (0, 4), add_offsets.handle_add_offsets, TRANSACTION, WRITE),
    _spec(26, (0, 5), end_txn.handle_end_txn, TRANSACTION, WRITE),
    _spec(27, (0, 1), write_markers.handle_write_markers, CLUSTER, ALTER),
    _spec(
        28,
        (0, 5),
        txn_offset_commit.handle_txn_offset_commit,
        TRANSACTION,
        WRITE,
        elements_max=MANY,
    ),
    _spec(29, (0, 3), acls.handle_describe_acls, CLUSTER, DESCRIBE),
    _spec(30, (0, 3), acls.handle_create_acls, CLUSTER, ALTER),
    _spec(31, (0, 3), acls.handle_delete_acls, CLUSTER, ALTER),
    _spec(
        32,
        (0, 4),
        configs.handle_describe_configs,
        TOPIC,
        SETTINGS,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    _spec(33, (0, 2), configs.handle_alter_configs, TOPIC, CHANGE, elements_max=MANY),
    _spec(34, (0, 2), log_dirs.handle_alter_replica_log_dirs, CLUSTER, ALTER),
    _spec(35, (0, 5), log_dirs.handle_describe_log_dirs, CLUSTER, DESCRIBE, encode_in_thread=True),
    _spec(
        37, (0, 3), create_partitions.handle_create_partitions, TOPIC, ALTER, elements_max=IN_STEPS
    ),
    _spec(
        38,
        (0, 3),
        delegation_tokens.handle_create_delegation_token,
        ResourceKind.USER,
        Operation.CREATE_TOKENS,
        frame_bytes_max=TOKEN_BYTES,
        elements_max=1_000,
    ),
    _spec(
        39,
        (0, 2),
        delegation_tokens.handle_renew_delegation_token,
        ResourceKind.DELEGATION_TOKEN,
        ALTER,
        frame_bytes_max=TOKEN_BYTES,
    ),
    _spec(
        40,
        (0, 2),
        delegation_tokens.handle_expire_delegation_token,
        ResourceKind.DELEGATION_TOKEN,
        DELETE,
        frame_bytes_max=TOKEN_BYTES,
    ),
    _spec(
        41,
        (0, 3),
        delegation_tokens.handle_describe_delegation_token,
        ResourceKind.DELEGATION_TOKEN,
        DESCRIBE,
        frame_bytes_max=TOKEN_BYTES,
        elements_max=1_000,
        encode_in_thread=True,
    ),
    _spec(42, (0, 2), delete_groups.handle_delete_groups, GROUP, DELETE, elements_max=FETCHED),
    _spec(43, (0, 2), elections.handle_elect_leaders, CLUSTER, ALTER),
    _spec(44, (0, 1), configs.handle_incremental_alter_configs, TOPIC, CHANGE, elements_max=MANY),
    _spec(45, (0, 1), reassignments.handle_alter_partition_reassignments, CLUSTER, ALTER),
    _spec(46, (0, 0), reassignments.handle_list_partition_reassignments, CLUSTER, DESCRIBE),
    _spec(47, (0, 0), delete_groups.handle_offset_delete, GROUP, DELETE),
    _spec(
        48,
        (0, 1),
        describe_quotas.handle_describe_client_quotas,
        CLUSTER,
        Operation.DESCRIBE_SETTINGS,
        encode_in_thread=True,
    ),
    _spec(49, (0, 1), alter_quotas.handle_alter_client_quotas, CLUSTER, Operation.ALTER_SETTINGS),
    _spec(50, (0, 0), scram.handle_describe_user_scram_credentials, CLUSTER, DESCRIBE),
    _spec(51, (0, 0), scram.handle_alter_user_scram_credentials, CLUSTER, ALTER),
    _spec(55, (0, 2), quorum.handle_describe_quorum, CLUSTER, DESCRIBE),
    _spec(57, (0, 2), features.handle_update_features, CLUSTER, ALTER),
    _spec(60, (0, 2), describe_cluster.handle_describe_cluster, CLUSTER, DESCRIBE),
    _spec(
        61, (0, 0), describe_producers.handle_describe_producers, TOPIC, READ, encode_in_thread=True
    ),
    _spec(64, (0, 0), unregister_broker.handle_unregister_broker, CLUSTER, ALTER),
    _spec(65, (0, 0), describe_transactions.handle_describe_transactions, TRANSACTION, DESCRIBE),
    _spec(66, (0, 2), list_transactions.handle_list_transactions, TRANSACTION, DESCRIBE),
    _spec(68, (0, 1), consumer.handle_consumer_group_heartbeat, GROUP, READ, elements_max=MANY),
    _spec(
        69,
        (0, 1),
        describe_consumer_groups.handle_consumer_group_describe,
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        encode_in_thread=True,
    ),
    _spec(
        71,
        (0, 0),
        telemetry.handle_get_telemetry_subscriptions,
        CLUSTER,
        DESCRIBE,
        advertised=False,
    ),
    _spec(72, (0, 0), telemetry.handle_push_telemetry, CLUSTER, DESCRIBE, advertised=False),
    _spec(
        74,
        (0, 1),
        list_resources.handle_list_config_resources,
        CLUSTER,
        Operation.DESCRIBE_SETTINGS,
    ),
    _spec(
        75,
        (0, 0),
        topic_partitions.handle_describe_topic_partitions,
        TOPIC,
        DESCRIBE,
        elements_max=FETCHED,
    ),
    _spec(20_001, (0, 0), commit_transactions.handle_commit_transactions, TRANSACTION, WRITE),
    _spec(
        20_002, (0, 0), commit_transactions.handle_describe_committed_batch, TRANSACTION, DESCRIBE
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
