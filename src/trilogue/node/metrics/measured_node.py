"""The parts of a node that have numbers to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trilogue.gateway.conversion_cache import ConversionCache
    from trilogue.gateway.http.app import State
    from trilogue.gateway.http.listener import HttpListener
    from trilogue.gateway.kafka.connection import KafkaGateway
    from trilogue.gateway.listener import Listener
    from trilogue.gateway.memory_budget import ConnectionMemory
    from trilogue.gateway.pulsar.gateway import PulsarGateway
    from trilogue.gateway.tubemq.gateway import TubeGateway
    from trilogue.node.addresses import Address
    from trilogue.node.background.flush import Flusher
    from trilogue.node.background.helper import Helper
    from trilogue.node.background.maintenance import Maintenance
    from trilogue.node.background.merge import MergePlanner
    from trilogue.node.background.objects import ObjectMover
    from trilogue.node.background.retired import RetiredFiles
    from trilogue.node.metrics.measurements import LoopLag, MessageCount
    from trilogue.node.settings.table import Settings
    from trilogue.node.storage import Storage


class MeasuredNode(Protocol):
    """The parts of a node that have numbers to show."""

    settings: Settings
    state: State
    lag: LoopLag
    messages: MessageCount
    listeners: dict[str, Listener]
    advertised: dict[str, Address]
    http: HttpListener | None
    kafka: KafkaGateway | None
    pulsar: PulsarGateway | None
    tubemq: TubeGateway | None
    conversions: ConversionCache
    memory: ConnectionMemory
    storage: Storage
    helper: Helper
    flusher: Flusher
    maintenance: Maintenance
    merging: MergePlanner
    retired: RetiredFiles
    objects: ObjectMover | None
