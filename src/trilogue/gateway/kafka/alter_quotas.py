"""AlterClientQuotas v0-v1: set or remove bounds of users, client ids, addresses (KIP-546, KIP-612).

v1 flexible. Each entity has its own outcome; all that may be are recorded in one commit, which is
durable before the answer leaves, and hold from then on. An entity that the request names twice, or
a bound that it names twice for one entity, is 42, and so are more than 1,000 entities. To remove
what is not set is no error.

Everybody is `User:ANONYMOUS` as long as nobody has to say who it is; a quota of a user who is not
there bounds nobody. Names of hosts are no addresses: nothing is looked up here.
"""

from __future__ import annotations

from collections import Counter

from trilogue.broker.access import CLUSTER, Resource
from trilogue.broker.errors import AccessDenied, BrokerError, InvalidRequest
from trilogue.broker.quotas import DEFAULT, Bound, Who, check_rate, check_who
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.quota_names import BOUNDS, PARTS
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import carry_out, kept
from trilogue.wire.kafka.alter_quotas import AlterClientQuotasRequest, OpData
from trilogue.wire.kafka.alter_quotas import EntityData as AskedPart
from trilogue.wire.kafka.altered_quotas import AlterClientQuotasResponse, EntityData, EntryData

Rates = dict[Bound, float | None]
ENTRIES_MAX = 1_000  # of a request: they are decided and recorded in one go


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Change what may be changed."""
    if len(request.entries) > ENTRIES_MAX:
        return _too_many(request)
    mentioned = Counter(_parts(each.entity) for each in request.entries)
    results: dict[tuple[tuple[str, str | None], ...], EntryData] = {}
    changes: list[tuple[EntryData, Who, Rates]] = []
    for each in request.entries:
        key = _parts(each.entity)
        if key in results:
            continue
        result = results[key] = _result(key)
        try:
            if not call.allowed(CLUSTER.name):
                raise AccessDenied(call.operation, Resource(call.kind, CLUSTER.name))
            if mentioned[key] > 1:
                raise InvalidRequest("the request names this more than once")
            who = _who(key)
            changes.append((result, who, _rates(who, each.ops)))
        except BrokerError as problem:
            _refuse(result, problem)
    if changes and not request.validate_only:
        await _record(call, changes)
    return AlterClientQuotasResponse(entries=list(results.values()))


def _too_many(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    problem = InvalidRequest(f"a request changes {ENTRIES_MAX} quotas at most")
    results = [
        _result(key) for key in dict.fromkeys(_parts(each.entity) for each in request.entries)
    ]
    for result in results:
        _refuse(result, problem)
    return AlterClientQuotasResponse(entries=results)


async def _record(call: Call, changes: list[tuple[EntryData, Who, Rates]]) -> None:
    problem: BaseException | None
    try:
        commit = call.door.quotas.plan_alter([(who, rates) for _, who, rates in changes])
        promise = carry_out(call, commit)
        await kept(call, promise)
        problem = promise.error
    except BrokerError as error:
        problem = error
    if problem is not None:
        for result, _, _ in changes:
            _refuse(result, problem)


def _parts(asked: list[AskedPart]) -> tuple[tuple[str, str | None], ...]:
    """The parts of an entity, of each kind the last, sorted."""
    return tuple(sorted({each.entity_type: each.entity_name for each in asked}.items()))


def _who(parts: tuple[tuple[str, str | None], ...]) -> Who:
    found: dict[str, str] = {}
    for kind, name in parts:
        if kind not in PARTS:
            raise InvalidRequest(f"there is no kind {kind}")
        if name == DEFAULT:
            raise InvalidRequest(f"the empty name is no {kind}")
        found[kind] = DEFAULT if name is None else name
    return check_who(Who(*(found.get(kind) for kind in PARTS)))


def _rates(who: Who, ops: list[OpData]) -> Rates:
    rates: Rates = {}
    for op in ops:
        bound = BOUNDS.get(op.key)
        if bound is None and not op.remove:
            raise InvalidRequest(f"there is no bound {op.key}")
        if bound is None:
            continue
        if bound in rates:
            raise InvalidRequest(f"the request names {op.key} more than once")
        rates[bound] = None if op.remove else check_rate(who, bound, op.value)
    return rates


def _result(parts: tuple[tuple[str, str | None], ...]) -> EntryData:
    return EntryData(
        error_message=None,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )


def _refuse(result: EntryData, problem: BaseException) -> None:
    result.error_code = code_of(problem)
    result.error_message = str(problem) or None
