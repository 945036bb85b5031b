"""The broker as TubeMQ's administrators see it: one, always there, which may be told to pause.

What a real master keeps of many brokers (their addresses, ports, groups, regions) the settings of
the node say here. A change holds at once, so there is nothing to reload.
"""

from __future__ import annotations

from msgspec.structs import replace

from trilogue import __version__
from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.commit import Commit
from trilogue.broker.group_rules import BrokerSaid
from trilogue.gateway.http.changing import carry_out
from trilogue.gateway.http.tubemq_asked import (
    EXISTS,
    NOT_FOUND,
    NOT_NOW,
    UNCHANGED,
    UNDEFINED,
    Answer,
    Asked,
    Failed,
    Row,
    Wrong,
    each,
    ok,
    refused,
    single,
    stamped,
)
from trilogue.gateway.http.tubemq_topic_views import configured, manage_status, stored
from trilogue.gateway.http.tubemq_topics import FILE_BOUNDS
from trilogue.gateway.tubemq.door import BROKER_ID

TEXT = {True: "true", False: "false"}


def _address(asked: Asked) -> tuple[str, int]:
    host, _, port = asked.door.broker_address.rpartition(":")
    return host, int(port)


def configure(asked: Asked) -> Answer:
    """Tell what is said of the broker."""
    if not _is_meant(asked):
        return ok([])
    said = asked.rules.broker
    host, port = _address(asked)
    told: Answer = {
        "brokerId": BROKER_ID,
        "brokerIp": host,
        "brokerPort": port,
        "brokerTLSPort": UNDEFINED,
        "brokerWebPort": asked.web_port,
        "manageStatus": manage_status(asked),
        "isConfChanged": False,
        "isConfLoaded": True,
        "regionId": 0,
        "groupId": 0,
        "numTopicStores": 1,
        "numPartitions": 1,
        **FILE_BOUNDS,
        "acceptPublish": said.publishes,
        "acceptSubscribe": said.subscribes,
        **stored(asked.broker.cluster.defaults.retention_ms),
        **stamped(said.stamp),
    }
    if asked.flag("withTopic", default=False):
        told["topicSet"] = [configured(asked, topic) for topic in asked.found_topics()]
    return ok([told])


def run_status(asked: Asked) -> Answer:
    """Tell how the broker is."""
    abnormal = any(
        asked.flag(name, default=False)
        for name in ("onlyAbnormal", "onlyAutoForbidden", "onlyEnableTLS")
    )
    if abnormal or not _is_meant(asked):
        return ok([])
    said = asked.rules.broker
    host, port = _address(asked)
    return ok(
        [
            {
                "brokerId": BROKER_ID,
                "brokerIp": host,
                "brokerPort": port,
                "brokerWebPort": asked.web_port,
                "brokerTLSPort": UNDEFINED,
                "manageStatus": manage_status(asked),
                "enableTLS": False,
                "isRepAbnormal": False,
                "isAutoForbidden": False,
                "runStatus": "running",
                "subStatus": "idle",
                "stepOp": 0,
                "isConfChanged": "false",
                "isConfLoaded": "true",
                "isBrokerOnline": "true",
                "brokerVersion": __version__,
                "acceptPublish": TEXT[said.publishes],
                "acceptSubscribe": TEXT[said.subscribes],
            }
        ]
    )


def _is_meant(asked: Asked) -> bool:
    hosts = asked.names("brokerIp")
    return asked.is_about_us and (not hosts or _address(asked)[0] in hosts)


async def add(asked: Asked) -> list[Answer]:
    """Refuse: the one that there is was made with the node."""
    return [
        await each(_add(broker_id), brokerId=broker_id, brokerIp=asked.text("brokerIp", ""))
        for broker_id in _named(asked)
    ]


async def _add(broker_id: int) -> None:
    if broker_id == BROKER_ID:
        raise Failed(EXISTS, f"Existed record found for brokerId({broker_id})!")
    raise Failed(NOT_NOW, "brokers do not join by the web API: each node says what it is itself")


async def online(asked: Asked) -> list[Answer]:
    """Take messages from TubeMQ clients, and give them out."""
    return await _said(asked, publishes=True, subscribes=True)


async def offline(asked: Asked) -> list[Answer]:
    """Do neither."""
    return await _said(asked, publishes=False, subscribes=False)


async def read_or_write(asked: Asked) -> list[Answer]:
    """Do one of the two, or both."""
    if not asked.has("acceptPublish") and not asked.has("acceptSubscribe"):
        raise Wrong("Fields acceptPublish or acceptSubscribe must exist at this method!")
    said = asked.rules.broker
    return await _said(
        asked,
        publishes=asked.flag("acceptPublish", default=said.publishes),
        subscribes=asked.flag("acceptSubscribe", default=said.subscribes),
    )


async def _said(asked: Asked, *, publishes: bool, subscribes: bool) -> list[Answer]:
    return [
        await each(
            _say(asked, broker_id, publishes=publishes, subscribes=subscribes),
            brokerId=broker_id,
            brokerIp=_address(asked)[0] if broker_id == BROKER_ID else "",
        )
        for broker_id in _named(asked)
    ]


async def _say(asked: Asked, broker_id: int, *, publishes: bool, subscribes: bool) -> None:
    _check(broker_id)
    rules = asked.rules

    def decide() -> Commit[None]:
        before = rules.broker
        if (before.publishes, before.subscribes) == (publishes, subscribes):
            raise Failed(UNCHANGED, f"Unchanged manageStatus({manage_status(asked)})!")
        said = BrokerSaid(publishes, subscribes)
        return rules.plan_broker(replace(said, stamp=asked.stamp(before.stamp)))

    await carry_out(asked.door, decide)


async def reload(asked: Asked) -> list[Answer]:
    """Nothing has to be done: what is said holds already."""
    return [
        await each(
            _reload(broker_id),
            brokerId=broker_id,
            brokerIp=_address(asked)[0] if broker_id == BROKER_ID else "",
        )
        for broker_id in _named(asked)
    ]


async def _reload(broker_id: int) -> None:
    _check(broker_id)


def _named(asked: Asked) -> list[int]:
    asked.names("brokerId", needed=True)
    return asked.broker_ids


def _check(broker_id: int) -> None:
    if broker_id != BROKER_ID:
        raise Failed(NOT_FOUND, "The broker configure not exist!")


def masters(asked: Asked) -> Answer:
    """Tell who is the master: this node, alone."""
    node = {
        "index": 1,
        "name": f"node{asked.broker.cluster.node_id}",
        "hostName": _address(asked)[0],
        "port": "-",  # of a real master's replication: there is none
        "statusInfo": {"nodeStatus": "MASTER", "joinTime": "0"},
    }
    return ok(
        [node], groupName="trilogue", isPrimaryNodeActive=False, groupStatus="Running-ReadWrite"
    )


def transfer(asked: Asked) -> Answer:
    """There is nobody to transfer it to."""
    del asked
    return refused("The replicate nodes is empty!")


def version(asked: Asked) -> Answer:
    """Tell what this is."""
    del asked
    return ok([{"version": f"Trilogue {__version__}"}])


CLUSTER = ResourceKind.CLUSTER
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER
ROWS = (
    Row("admin_query_broker_configure", configure, CLUSTER, DESCRIBE),
    Row("admin_query_broker_run_status", run_status, CLUSTER, DESCRIBE),
    Row("admin_add_broker_configure", single(add), CLUSTER, Operation.CREATE, changes=True),
    Row("admin_online_broker_configure", single(online), CLUSTER, ALTER, changes=True),
    Row("admin_offline_broker_configure", single(offline), CLUSTER, ALTER, changes=True),
    Row("admin_set_broker_read_or_write", single(read_or_write), CLUSTER, ALTER, changes=True),
    Row("admin_reload_broker_configure", single(reload), CLUSTER, ALTER, changes=True),
    Row("admin_query_master_group_info", masters, CLUSTER, DESCRIBE),
    Row("admin_transfer_current_master", transfer, CLUSTER, ALTER, changes=True),
    Row("admin_query_server_version", version, CLUSTER, DESCRIBE),
)
