"""The admin client: all administrative requests."""

from __future__ import annotations

from trilogue.client.kafka.admin.acls import AclAdmin
from trilogue.client.kafka.admin.configs import ConfigAdmin
from trilogue.client.kafka.admin.group_offsets import GroupOffsetAdmin
from trilogue.client.kafka.admin.nodes import NodeAdmin
from trilogue.client.kafka.admin.offsets import OffsetAdmin
from trilogue.client.kafka.admin.topics import TopicAdmin
from trilogue.client.kafka.admin.transactions import TransactionAdmin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.coordinators import Coordinators


class Admin(
    TopicAdmin, ConfigAdmin, AclAdmin, GroupOffsetAdmin, OffsetAdmin, NodeAdmin, TransactionAdmin
):
    """All administrative requests; `KafkaClient.admin` is one."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster)
        self._coordinators = Coordinators(cluster)
