"""What TubeMQ's web API serves: from the code."""

from __future__ import annotations

from tools.docs.blocks import table
from trilogue.gateway.http.tubemq.routes import NOT_SERVED, TABLE
from trilogue.gateway.http.tubemq.web_api_request import WebApiMethod


def methods() -> str:
    """One row for each method."""
    return table(
        ("method", "in TubeMQ of the", "access", "token"), (_method(row) for row in _rows())
    )


def _rows() -> list[WebApiMethod]:
    return sorted(TABLE.values(), key=lambda row: (row.of_broker, row.name))


def _method(row: WebApiMethod) -> tuple[object, ...]:
    access = f"{row.operation.value} on {row.resource.value}"
    where = "broker" if row.of_broker else "master"
    return f"`{row.name}`", where, access, "yes" if row.changes else ""


def not_served() -> str:
    """One row for each method that a real server has and this one refuses."""
    return table(("method", "why"), ((f"`{name}`", why) for name, why in NOT_SERVED.items()))
