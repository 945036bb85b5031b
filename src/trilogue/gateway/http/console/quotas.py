"""Quotas of clients: the list, and the form that sets or removes one, as AlterClientQuotas does.

An entity is a user, a client id, both, or an address; `<default>` is the default of its kind, as
Kafka's tools show it.
"""

from __future__ import annotations

import math
from typing import Any, Final

from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind, check_entity, check_rate
from trilogue.gateway.http.console.rendering import Page, Redirect
from trilogue.gateway.http.console.request import (
    NAMES_PER_STEP,
    PAGE_ROWS,
    ConsoleRequest,
    make_link,
)
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.kafka.quotas.quota_entities import BOUNDS, KEYS, PARTS
from trilogue.gateway.steps import next_step

DEFAULT_NAME: Final = "<default>"


async def list_quotas(request: ConsoleRequest) -> Page:
    """Return a page of the quotas whose entity has a text in one of its names."""
    request.check(Operation.DESCRIBE_SETTINGS, *CLUSTER)
    wanted, after = request.text("q").strip().lower(), request.number("after", 0)
    rows: list[dict[str, Any]] = []
    for count, (entity, rates) in enumerate(request.gateway.quotas, 1):
        names = ["" if name is None else name or DEFAULT_NAME for name in entity]
        if any(wanted in name.lower() for name in names):
            rows += [{"names": names, "key": KEYS[kind], "rate": rates[kind]} for kind in rates]
        if count % NAMES_PER_STEP == 0:
            await next_step()
    rows.sort(key=lambda row: (row["names"], row["key"]))
    values = {
        "rows": rows[after : after + PAGE_ROWS],
        "count": len(rows),
        "q": request.text("q"),
        "more": after + PAGE_ROWS if len(rows) > after + PAGE_ROWS else 0,
        "keys": list(BOUNDS),
        "parts": PARTS,
        "can_change": request.can(Operation.ALTER_SETTINGS, *CLUSTER),
    }
    return Page("quotas.html", values)


async def set_quota(request: ConsoleRequest) -> Redirect:
    """Set one quota of an entity."""
    entity, kind = _read_quota(request)
    return await _change_quota(request, entity, kind, check_rate(entity, kind, _read_rate(request)))


async def remove_quota(request: ConsoleRequest) -> Redirect:
    """Remove one quota of an entity."""
    return await _change_quota(request, *_read_quota(request), None)


def _read_quota(request: ConsoleRequest) -> tuple[QuotaEntity, QuotaKind]:
    """Return what the form names, for a principal that may change it; HttpError 400."""
    request.check(Operation.ALTER_SETTINGS, *CLUSTER)
    fields = request.fields
    kind = BOUNDS.get(fields.get("key", ""))
    if kind is None:
        raise HttpError(400, f"a quota is one of {', '.join(BOUNDS)}")
    entity = check_entity(QuotaEntity(*(_read_name(fields.get(part, "")) for part in PARTS)))
    return entity, kind


async def _change_quota(
    request: ConsoleRequest, entity: QuotaEntity, kind: QuotaKind, rate: float | None
) -> Redirect:
    quotas = request.gateway.quotas
    await request.commit_change(lambda: quotas.plan_alter([(entity, {kind: rate})]))
    request.access.record_act("alter quota", Resource(*CLUSTER), quota=KEYS[kind])
    return Redirect(make_link("/quotas"))


def _read_name(text: str) -> str | None:
    """Return the name of a part, None where it is absent."""
    name = text.strip()
    return DEFAULT if name == DEFAULT_NAME else name or None


def _read_rate(request: ConsoleRequest) -> float:
    try:
        rate = float(request.fields.get("rate", "").strip())
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate):
        raise HttpError(400, "a quota has a number: bytes, percent, partitions or connections")
    return rate
