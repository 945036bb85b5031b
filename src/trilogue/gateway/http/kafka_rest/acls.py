"""Version 3: access control lists, searched, created and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from trilogue.client.kafka.admin.model import Acl, AclFilter
from trilogue.client.kafka.model import granted
from trilogue.gateway.http.kafka_rest.links import (
    MEDIA_TYPE,
    ROOT,
    check_cluster,
    make_link,
    make_list,
)
from trilogue.gateway.http.kafka_rest.rest_errors import RestError
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
)

RESOURCE_TYPES: Final = {
    "ANY": 1, "TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5, "DELEGATION_TOKEN": 6,
    "USER": 7,
}  # fmt: skip
PATTERN_TYPES: Final = {"ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}
OPERATIONS: Final = {
    name: code
    for code, name in enumerate(
        ("ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
         "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
         "CREATE_TOKENS", "DESCRIBE_TOKENS"), 1,
    )
}  # fmt: skip
PERMISSIONS: Final = {"ANY": 1, "DENY": 2, "ALLOW": 3}
ACLS_MAX: Final = 1_000  # of one request


class AclBody(msgspec.Struct):
    """A rule as it is created."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclBatchBody(msgspec.Struct):
    """Rules that are created together."""

    data: list[AclBody]


def routes() -> list[RestRoute]:
    """Return the routes of rules."""
    path = f"{ROOT}/{{cluster}}/acls"
    return [
        RestRoute("GET", path, search_acls),
        RestRoute("POST", path, create_acl),
        RestRoute("POST", f"{path}:batch", create_acls),
        RestRoute("DELETE", path, delete_acls),
    ]


async def search_acls(request: RestRequest) -> RestReply:
    """Return the rules that match the query."""
    await check_cluster(request)
    wanted = _parse_filter(request.http.query_params, "ANY")
    found = await request.client.admin.describe_acls(wanted)
    query = urlencode(_filter_fields(request.http.query_params, "ANY"))
    path = f"{ROOT}/{request.params['cluster']}/acls?{query}"
    return make_list(request, "KafkaAcl", _describe_all(request, found), path)


async def create_acl(request: RestRequest) -> RestReply:
    """Create a rule; the address of the reply is that of the rule."""
    await check_cluster(request)
    acl = _parse_acl(request.json(AclBody))
    granted(await request.client.admin.create_acls([acl]))
    location = make_link(request, _acl_path(request, acl))
    return RestReply(None, MEDIA_TYPE, 201, (("location", location),))


async def create_acls(request: RestRequest) -> RestReply:
    """Create several rules."""
    await check_cluster(request)
    body = request.json(AclBatchBody)
    if not 1 <= len(body.data) <= ACLS_MAX:
        raise RestError(400, f"a request has 1 to {ACLS_MAX} rules")
    acls = [_parse_acl(each) for each in body.data]
    granted(await request.client.admin.create_acls(acls))
    return RestReply(None, MEDIA_TYPE, 201)


async def delete_acls(request: RestRequest) -> RestReply:
    """Delete the rules that match the query, which names all kinds; return them."""
    await check_cluster(request)
    wanted = _parse_filter(request.http.query_params, "")
    found = await request.client.admin.delete_acls(wanted)
    return RestReply({"data": _describe_all(request, found)}, MEDIA_TYPE)


def _filter_fields(query: Mapping[str, str], default: str) -> dict[str, str]:
    kinds = dict.fromkeys(("resource_type", "pattern_type", "operation", "permission"), default)
    names = dict.fromkeys(("resource_name", "principal", "host"), "")
    found = {name: query.get(name, each) for name, each in (kinds | names).items()}
    return {name: text.upper() if name in kinds else text for name, text in found.items()}


def _parse_filter(query: Mapping[str, str], default: str) -> AclFilter:
    fields = _filter_fields(query, default)
    return AclFilter(
        _code(fields, "resource_type", RESOURCE_TYPES),
        fields["resource_name"] or None,
        _code(fields, "pattern_type", PATTERN_TYPES),
        fields["principal"] or None,
        fields["host"] or None,
        _code(fields, "operation", OPERATIONS),
        _code(fields, "permission", PERMISSIONS),
    )


def _parse_acl(body: AclBody) -> Acl:
    fields: dict[str, str] = msgspec.structs.asdict(body)
    return Acl(
        _code(fields, "resource_type", RESOURCE_TYPES),
        body.resource_name,
        _code(fields, "pattern_type", PATTERN_TYPES),
        body.principal,
        body.host,
        _code(fields, "operation", OPERATIONS),
        _code(fields, "permission", PERMISSIONS),
    )


def _code(fields: Mapping[str, str], name: str, codes: Mapping[str, int]) -> int:
    """Return the code of a word; raises RestError 400."""
    code = codes.get(fields[name].upper())
    if code is None:
        given = fields[name][:40] or "not given"
        raise RestError(400, f"{name} cannot be {given}: it is one of {', '.join(codes)}")
    return code


def _describe_all(request: RestRequest, found: Sequence[Acl]) -> list[dict[str, Any]]:
    return [
        {
            "kind": "KafkaAcl",
            "metadata": {"self": make_link(request, _acl_path(request, each))},
            "cluster_id": request.params["cluster"],
            **_acl_fields(each),
        }
        for each in sorted(found)
    ]


def _acl_fields(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": _word(RESOURCE_TYPES, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _word(PATTERN_TYPES, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _word(OPERATIONS, acl.operation),
        "permission": _word(PERMISSIONS, acl.permission),
    }


def _word(codes: Mapping[str, int], code: int) -> str:
    return next((word for word, each in codes.items() if each == code), "UNKNOWN")


def _acl_path(request: RestRequest, acl: Acl) -> str:
    return f"{ROOT}/{request.params['cluster']}/acls?{urlencode(_acl_fields(acl))}"
