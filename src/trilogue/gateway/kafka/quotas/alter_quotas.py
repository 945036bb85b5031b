"""AlterClientQuotas v0-v1: set or remove quotas of users, client ids and addresses.

KIP-546, KIP-612; v1 flexible. Each entity has its own result. All valid changes are recorded
together, durable before the response, and hold from then on. An entity named twice, a quota named
twice for one entity, and more than 1,000 entities are 42. Removing a quota that is not set is no
error.

Without authentication every principal is `User:ANONYMOUS`; a quota of an unknown user has no
effect. Host names are no addresses: nothing is resolved.
"""

from __future__ import annotations

from collections import Counter

from trilogue.broker.access.authorizer import CLUSTER, Resource
from trilogue.broker.errors import AccessDenied, BrokerError, InvalidRequest
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind, check_entity, check_rate
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import set_error
from trilogue.gateway.kafka.metadata_changes import start_change
from trilogue.gateway.kafka.quotas.quota_entities import BOUNDS, PARTS
from trilogue.gateway.steps import wait_until_settled
from trilogue.wire.kafka.quotas.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotasOp,
    AlterQuotasResult,
    EntityData,
)

Rates = dict[QuotaKind, float | None]
ENTRIES_MAX = 1_000  # of a request: they are recorded together


async def handle_alter_client_quotas(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas of valid entries."""
    if len(request.entries) > ENTRIES_MAX:
        return _refuse_all(request)
    mentioned = Counter(_sorted_parts(each.entity) for each in request.entries)
    results: dict[tuple[tuple[str, str | None], ...], AlterQuotasResult] = {}
    changes: list[tuple[AlterQuotasResult, QuotaEntity, Rates]] = []
    for each in request.entries:
        key = _sorted_parts(each.entity)
        if key in results:
            continue
        result = results[key] = _empty_result(key)
        try:
            if not context.is_allowed(CLUSTER.name):
                raise AccessDenied(context.operation, Resource(context.kind, CLUSTER.name))
            if mentioned[key] > 1:
                raise InvalidRequest("the request names this more than once")
            entity_key = _read_entity(key)
            changes.append((result, entity_key, _read_rates(entity_key, each.ops)))
        except BrokerError as problem:
            set_error(result, problem)
    if changes and not request.validate_only:
        await _record(context, changes)
    return AlterClientQuotasResponse(entries=list(results.values()))


def _refuse_all(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    problem = InvalidRequest(f"a request changes {ENTRIES_MAX} quotas at most")
    results = [
        _empty_result(key)
        for key in dict.fromkeys(_sorted_parts(each.entity) for each in request.entries)
    ]
    for result in results:
        set_error(result, problem)
    return AlterClientQuotasResponse(entries=results)


async def _record(
    context: RequestContext, changes: list[tuple[AlterQuotasResult, QuotaEntity, Rates]]
) -> None:
    problem: BaseException | None
    try:
        change = context.gateway.quotas.plan_alter(
            [(entity_key, rates) for _, entity_key, rates in changes]
        )
        promise = start_change(context, change)
        await wait_until_settled(promise)
        problem = promise.error
    except BrokerError as error:
        problem = error
    if problem is not None:
        for result, _, _ in changes:
            set_error(result, problem)


def _sorted_parts(requested: list[EntityData]) -> tuple[tuple[str, str | None], ...]:
    """Return the parts of an entity sorted by type; of each type the last."""
    return tuple(sorted({each.entity_type: each.entity_name for each in requested}.items()))


def _read_entity(parts: tuple[tuple[str, str | None], ...]) -> QuotaEntity:
    found: dict[str, str] = {}
    for kind, name in parts:
        if kind not in PARTS:
            raise InvalidRequest(f"there is no kind {kind}")
        if name == DEFAULT:
            raise InvalidRequest(f"the empty name is no {kind}")
        found[kind] = DEFAULT if name is None else name
    return check_entity(QuotaEntity(*(found.get(kind) for kind in PARTS)))


def _read_rates(entity_key: QuotaEntity, ops: list[AlterQuotasOp]) -> Rates:
    rates: Rates = {}
    for op in ops:
        bound = BOUNDS.get(op.key)
        if bound is None and not op.remove:
            raise InvalidRequest(f"there is no bound {op.key}")
        if bound is None:
            continue
        if bound in rates:
            raise InvalidRequest(f"the request names {op.key} more than once")
        rates[bound] = None if op.remove else check_rate(entity_key, bound, op.value)
    return rates


def _empty_result(parts: tuple[tuple[str, str | None], ...]) -> AlterQuotasResult:
    return AlterQuotasResult(
        error_message=None,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )
