"""The broker as TubeMQ's web API shows it: one, always there, which may be paused.

What a real master stores of many brokers (addresses, ports, groups, regions) are settings of the
node here. A change is effective at once, so there is nothing to reload.
"""

from __future__ import annotations

from msgspec.structs import replace

from trilogue import __version__
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.tubemq.group_rules import BrokerRecord
from trilogue.gateway.http.tubemq.topic_views import (
    describe_configuration,
    describe_storage,
    manage_status,
)
from trilogue.gateway.http.tubemq.topics import FILE_BOUNDS
from trilogue.gateway.http.tubemq.web_api_request import (
    EXISTS,
    NOT_FOUND,
    NOT_NOW,
    UNCHANGED,
    UNDEFINED,
    Answer,
    ItemError,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    describe_stamp,
    error_response,
    for_request,
    master_response,
    run_item,
)
from trilogue.gateway.tubemq.broker_map import BROKER_ID

TEXT = {True: "true", False: "false"}


def _address(request: WebApiRequest) -> tuple[str, int]:
    return request.gateway.broker_address()


def tls_port(request: WebApiRequest) -> int:
    """Return the port with TLS; -2 without one."""
    address = request.gateway.tls_advertised
    return UNDEFINED if address is None else address()[1]


def query_configuration(request: WebApiRequest) -> Answer:
    """Return the configuration of the broker."""
    if not _is_named(request):
        return master_response([])
    record = request.rules.broker
    host, port = _address(request)
    fields: Answer = {
        "brokerId": BROKER_ID,
        "brokerIp": host,
        "brokerPort": port,
        "brokerTLSPort": tls_port(request),
        "brokerWebPort": request.web_port,
        "manageStatus": manage_status(request),
        "isConfChanged": False,
        "isConfLoaded": True,
        "regionId": 0,
        "groupId": 0,
        "numTopicStores": 1,
        "numPartitions": 1,
        **FILE_BOUNDS,
        "acceptPublish": record.publishes,
        "acceptSubscribe": record.subscribes,
        **describe_storage(request.broker.cluster.defaults.retention_ms),
        **describe_stamp(record.stamp),
    }
    if request.flag("withTopic", default=False):
        fields["topicSet"] = [
            describe_configuration(request, topic) for topic in request.found_topics()
        ]
    return master_response([fields])


def query_run_status(request: WebApiRequest) -> Answer:
    """Return the state of the broker."""
    abnormal = any(
        request.flag(name, default=False) for name in ("onlyAbnormal", "onlyAutoForbidden")
    )
    has_tls = request.gateway.tls_advertised is not None
    if request.flag("onlyEnableTLS", default=False) and not has_tls:
        abnormal = True
    if abnormal or not _is_named(request):
        return master_response([])
    record = request.rules.broker
    host, port = _address(request)
    return master_response(
        [
            {
                "brokerId": BROKER_ID,
                "brokerIp": host,
                "brokerPort": port,
                "brokerWebPort": request.web_port,
                "brokerTLSPort": tls_port(request),
                "manageStatus": manage_status(request),
                "enableTLS": has_tls,
                "isRepAbnormal": False,
                "isAutoForbidden": False,
                "runStatus": "running",
                "subStatus": "idle",
                "stepOp": 0,
                "isConfChanged": "false",
                "isConfLoaded": "true",
                "isBrokerOnline": "true",
                "brokerVersion": __version__,
                "acceptPublish": TEXT[record.publishes],
                "acceptSubscribe": TEXT[record.subscribes],
            }
        ]
    )


def _is_named(request: WebApiRequest) -> bool:
    hosts = request.names("brokerIp")
    return request.names_this_broker and (not hosts or _address(request)[0] in hosts)


async def add_brokers(request: WebApiRequest) -> list[Answer]:
    """Reject the addition: the only broker exists."""
    return [
        await run_item(_add(broker_id), brokerId=broker_id, brokerIp=request.text("brokerIp", ""))
        for broker_id in _needed_broker_ids(request)
    ]


async def _add(broker_id: int) -> None:
    if broker_id == BROKER_ID:
        raise ItemError(EXISTS, f"Existed record found for brokerId({broker_id})!")
    raise ItemError(NOT_NOW, "brokers do not join by the web API: each node registers itself")


async def set_online(request: WebApiRequest) -> list[Answer]:
    """Accept messages from TubeMQ clients, and deliver them."""
    return await _set_status(request, publishes=True, subscribes=True)


async def set_offline(request: WebApiRequest) -> list[Answer]:
    """Do neither."""
    return await _set_status(request, publishes=False, subscribes=False)


async def set_read_or_write(request: WebApiRequest) -> list[Answer]:
    """Accept messages, deliver them, or both."""
    if not request.has("acceptPublish") and not request.has("acceptSubscribe"):
        raise WebApiError("Fields acceptPublish or acceptSubscribe must exist at this method!")
    record = request.rules.broker
    return await _set_status(
        request,
        publishes=request.flag("acceptPublish", default=record.publishes),
        subscribes=request.flag("acceptSubscribe", default=record.subscribes),
    )


async def _set_status(request: WebApiRequest, *, publishes: bool, subscribes: bool) -> list[Answer]:
    return [
        await run_item(
            _set_broker_status(request, broker_id, publishes=publishes, subscribes=subscribes),
            brokerId=broker_id,
            brokerIp=_address(request)[0] if broker_id == BROKER_ID else "",
        )
        for broker_id in _needed_broker_ids(request)
    ]


async def _set_broker_status(
    request: WebApiRequest, broker_id: int, *, publishes: bool, subscribes: bool
) -> None:
    _check(broker_id)
    rules = request.rules

    def decide() -> MetadataChange[None]:
        before = rules.broker
        if (before.publishes, before.subscribes) == (publishes, subscribes):
            raise ItemError(UNCHANGED, f"Unchanged manageStatus({manage_status(request)})!")
        record = BrokerRecord(publishes, subscribes)
        return rules.plan_broker(replace(record, stamp=request.stamp(before.stamp)))

    await request.commit_change(decide)


async def reload_brokers(request: WebApiRequest) -> list[Answer]:
    """Succeed: changes are effective already."""
    return [
        await run_item(
            _reload_broker(broker_id),
            brokerId=broker_id,
            brokerIp=_address(request)[0] if broker_id == BROKER_ID else "",
        )
        for broker_id in _needed_broker_ids(request)
    ]


async def _reload_broker(broker_id: int) -> None:
    _check(broker_id)


def _needed_broker_ids(request: WebApiRequest) -> list[int]:
    request.names("brokerId", needed=True)
    return request.broker_ids


def _check(broker_id: int) -> None:
    if broker_id != BROKER_ID:
        raise ItemError(NOT_FOUND, "The broker configure not exist!")


def query_masters(request: WebApiRequest) -> Answer:
    """Return the master: this node, alone."""
    node = {
        "index": 1,
        "name": f"node{request.broker.cluster.node_id}",
        "hostName": _address(request)[0],
        "port": "-",  # of a master's replication, which does not exist here
        "statusInfo": {"nodeStatus": "MASTER", "joinTime": "0"},
    }
    return master_response(
        [node], groupName="trilogue", isPrimaryNodeActive=False, groupStatus="Running-ReadWrite"
    )


def transfer_master(request: WebApiRequest) -> Answer:
    """Reject: there is no other node."""
    del request
    return error_response("The replicate nodes is empty!")


def query_version(request: WebApiRequest) -> Answer:
    """Return the version of this server."""
    del request
    return master_response([{"version": f"Trilogue {__version__}"}])


CLUSTER = ResourceKind.CLUSTER
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER
METHODS = (
    WebApiMethod("admin_query_broker_configure", query_configuration, CLUSTER, DESCRIBE),
    WebApiMethod("admin_query_broker_run_status", query_run_status, CLUSTER, DESCRIBE),
    WebApiMethod(
        "admin_add_broker_configure",
        for_request(add_brokers),
        CLUSTER,
        Operation.CREATE,
        changes=True,
    ),
    WebApiMethod(
        "admin_online_broker_configure", for_request(set_online), CLUSTER, ALTER, changes=True
    ),
    WebApiMethod(
        "admin_offline_broker_configure", for_request(set_offline), CLUSTER, ALTER, changes=True
    ),
    WebApiMethod(
        "admin_set_broker_read_or_write",
        for_request(set_read_or_write),
        CLUSTER,
        ALTER,
        changes=True,
    ),
    WebApiMethod(
        "admin_reload_broker_configure", for_request(reload_brokers), CLUSTER, ALTER, changes=True
    ),
    WebApiMethod("admin_query_master_group_info", query_masters, CLUSTER, DESCRIBE),
    WebApiMethod("admin_transfer_current_master", transfer_master, CLUSTER, ALTER, changes=True),
    WebApiMethod("admin_query_server_version", query_version, CLUSTER, DESCRIBE),
)
