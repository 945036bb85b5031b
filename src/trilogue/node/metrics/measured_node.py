"""The parts of a node that have numbers to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.gateway.conversion_cache import ConversionCache
    from trilogue.gateway.http.app import State
    from trilogue.gateway.memory_budget import ConnectionMemory
    from trilogue.node.background.flush import Flusher
    from trilogue.node.background.helper import Helper
    from trilogue.node.background.maintenance import Maintenance
    from trilogue.node.background.merge import MergePlanner
    from trilogue.node.background.objects import ObjectMover
    from trilogue.node.background.retired import RetiredFiles
    from trilogue.node.gateways import Gateways
    from trilogue.node.metrics.measurements import LoopLag, MessageCount
    from trilogue.node.settings.table import Settings
    from trilogue.node.storage import Storage


class MeasuredNode(Protocol):
    """The parts of a node that have numbers to show."""

    settings: Settings
    state: State
    began: float  # by time.monotonic
    now_ms: Callable[[], int]
    lag: LoopLag
    messages: MessageCount
    gateways: Gateways
    conversions: ConversionCache
    memory: ConnectionMemory
    storage: Storage
    helper: Helper
    flusher: Flusher
    maintenance: Maintenance
    merging: MergePlanner
    retired: RetiredFiles
    objects: ObjectMover | None
