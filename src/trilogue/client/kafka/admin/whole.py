"""All of the administration in one."""

from __future__ import annotations

from trilogue.client.kafka.admin.configs import Configs
from trilogue.client.kafka.admin.nodes import Nodes
from trilogue.client.kafka.admin.offsets import Offsets
from trilogue.client.kafka.admin.positions import Positions
from trilogue.client.kafka.admin.topics import Topics
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.coordinators import Coordinators


class Admin(Topics, Configs, Positions, Offsets, Nodes):
    """All administrative requests; `KafkaClient.admin` is one."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster)
        self._coordinators = Coordinators(cluster)
