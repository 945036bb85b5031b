"""The node itself: its figures, connections, transactions, nodes and slots."""

from __future__ import annotations

from typing import Any, Final

from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.gateway.http.console.rendering import Page
from trilogue.gateway.http.console.request import NAMES_PER_STEP, PAGE_ROWS, ConsoleRequest
from trilogue.gateway.http.metrics import Metric
from trilogue.gateway.steps import next_step

CONNECTIONS_SHOWN: Final = 200  # of one listener
COUNTERS: Final = {
    "trilogue_messages_total": "Messages appended",
    "trilogue_requests_total": "Requests",
    "trilogue_journal_commits_total": "Journal commits",
    "trilogue_journal_written_bytes_total": "Journal bytes",
}
GAUGES: Final = {
    "trilogue_connections": "Connections",
    "trilogue_tail_bytes": "Tail bytes",
    "trilogue_loop_lag_seconds": "Loop lag (s)",
}
JOBS: Final = ("trilogue_flush", "trilogue_maintenance", "trilogue_segment", "trilogue_object")


async def show_overview(request: ConsoleRequest) -> Page:
    """Return the page of the node: figures and jobs for those that may describe the cluster."""
    may_describe = request.can(Operation.DESCRIBE, *CLUSTER)
    broker = request.broker
    ownership = broker.cluster.ownership
    owners = [
        {
            "id": node_id,
            "is_this": node_id == ownership.node_id,
            "slots": _format_slots(slots),
            "listeners": dict(ownership.listeners(node_id)),
        }
        for node_id, slots in sorted(ownership.slots_by_node().items())
    ]
    metrics = _gather(request) if may_describe else []
    return Page(
        "overview.html",
        {
            "may_describe": may_describe,
            "owners": owners if may_describe else [],
            "topic_count": len(broker.cluster),
            "partition_count": broker.cluster.partition_count,
            "group_count": sum(1 for _ in broker.group_admin.listed()),
            "counters": COUNTERS,
            "gauges": GAUGES,
            "jobs": [each for each in metrics if each.name.startswith(JOBS)],
        },
    )


async def read_figures(request: ConsoleRequest) -> dict[str, Any]:
    """Return the figures that the charts of the overview follow."""
    request.check(Operation.DESCRIBE, *CLUSTER)
    sums: dict[str, float] = {}
    for metric in _gather(request):
        values = [value for _, value in metric.samples]
        whole = max(values, default=0.0) if metric.name.endswith("_seconds") else sum(values)
        sums[metric.name] = whole
    return {
        "at_ms": request.gateway.now_ms(),
        "counters": {name: sums.get(name, 0.0) for name in COUNTERS},
        "gauges": {name: sums.get(name, 0.0) for name in GAUGES},
    }


def _gather(request: ConsoleRequest) -> list[Metric]:
    """Return the metrics of /metrics, without histograms."""
    return [each for each in request.services.gather() if isinstance(each, Metric)]


def _format_slots(slots: list[int]) -> str:
    """Return slots as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for slot in sorted(slots):
        if runs and slot == runs[-1][1] + 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


async def list_connections(request: ConsoleRequest) -> Page:
    """Return the connections of each listener: address, principal, client."""
    request.check(Operation.DESCRIBE, *CLUSTER)
    found = request.services.list_connections()
    listeners = [
        {"name": name, "count": len(rows), "rows": sorted(rows)[:CONNECTIONS_SHOWN]}
        for name, rows in found.items()
    ]
    return Page("connections.html", {"listeners": listeners})


async def list_transactions(request: ConsoleRequest) -> Page:
    """Return a page of the transactions that the principal may describe, those that run first."""
    after = request.number("after", 0)
    rows = []
    for count, each in enumerate(list(request.broker.transactions.table), 1):
        row = each.row
        if request.can(Operation.DESCRIBE, ResourceKind.TRANSACTION, row.transactional_id):
            rows.append(
                {
                    "id": row.transactional_id,
                    "state": each.state.name.replace("_", " ").lower(),
                    "producer": row.producer_id,
                    "epoch": row.epoch,
                    "started_ms": row.started_ms,
                    "changed_ms": row.changed_ms,
                    "timeout_ms": row.timeout_ms,
                    "partitions": len(each.contained.partitions),
                    "groups": len(each.contained.groups),
                }
            )
        if count % NAMES_PER_STEP == 0:
            await next_step()
    rows.sort(key=lambda row: (row["partitions"] == 0, -int(str(row["changed_ms"]))))
    more = after + PAGE_ROWS if len(rows) > after + PAGE_ROWS else 0
    values = {"rows": rows[after : after + PAGE_ROWS], "count": len(rows), "more": more}
    return Page("transactions.html", values)
