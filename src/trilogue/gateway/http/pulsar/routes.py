"""Pulsar's REST API: the table of its routes, and the application.

The paths are those of /admin/v2 and /lookup/v2, and the old ones of /admin/…: topics and namespaces
with a cluster in the path, clusters, brokers, and tenants as properties. Each route names the
resource and the operation that are checked before the handler runs. A path without a route is 404
with a reason, a method that a path does not have is 405.

    build_pulsar_app(gateway, authority)     an ASGI application, for the root of the HTTP listener
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, BrokerError, NotOwner
from trilogue.broker.topics.lookup import is_coordinator_topic
from trilogue.gateway.http.escaped_paths import keep_escaped_slashes
from trilogue.gateway.http.pulsar import broker_stats
from trilogue.gateway.http.pulsar import clusters as pulsar_clusters
from trilogue.gateway.http.pulsar import namespaces as pulsar_namespaces
from trilogue.gateway.http.pulsar import non_persistent as pulsar_non_persistent
from trilogue.gateway.http.pulsar import schemas as pulsar_schemas
from trilogue.gateway.http.pulsar import subscriptions as pulsar_subscriptions
from trilogue.gateway.http.pulsar import topics as pulsar_topics
from trilogue.gateway.http.pulsar import transactions as pulsar_transactions
from trilogue.gateway.http.pulsar.admin_request import (
    AdminRequest,
    AdminRoute,
    Reply,
    encode_reply,
    error_reply,
    status_of,
)
from trilogue.gateway.http.pulsar.partition_owners import answer_for_partitions
from trilogue.gateway.http.request_limits import (
    HEADERS,
    HttpError,
    check_origin,
    read_body,
)
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.pulsar.metadata.tenant_access import is_missing_tenant, may_see_tenants
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

log = logging.getLogger(__name__)

V1, V2, V3 = "/admin", "/admin/v2", "/admin/v3"
PLACE, OLD_PLACE = "{tenant}/{namespace}", "{tenant}/{cluster}/{namespace}"
IN_TENANT = frozenset({ResourceKind.NAMESPACE, ResourceKind.TOPIC})
BODY_LEFT = frozenset({408, 413})  # with these the body was not read to its end


def all_routes() -> list[AdminRoute]:
    """Return all routes."""
    describe = Operation.DESCRIBE
    return [
        *(
            route.below(V2)
            for route in pulsar_clusters.ROUTES
        ),
        *broker_stats.routes(),
        *pulsar_clusters.lookup_routes("/lookup/v2"),
        *pulsar_topics.routes(f"{V2}/persistent/{PLACE}/{{topic}}"),
        *pulsar_subscriptions.routes(f"{V2}/persistent/{PLACE}/{{topic}}"),
        *pulsar_schemas.routes(f"{V2}/schemas/{PLACE}/{{topic}}"),
        *pulsar_namespaces.routes(V2, PLACE),
        *pulsar_non_persistent.routes(f"{V2}/non-persistent/{PLACE}"),
        AdminRoute("GET", f"{V2}/namespaces/{{tenant}}", pulsar_namespaces.list_namespaces,
            ResourceKind.NAMESPACE, describe),
        AdminRoute("POST", f"{V2}/namespaces/grantPermissionsOnTopics",
            pulsar_topics.grant_permissions, ResourceKind.CLUSTER, Operation.ALTER),
        AdminRoute("POST", f"{V2}/namespaces/revokePermissionsOnTopics",
            pulsar_topics.revoke_permissions, ResourceKind.CLUSTER, Operation.ALTER),
        *(
            AdminRoute("GET", f"{prefix}/namespaces/{{name}}/antiAffinity/{{group}}",
                broker_stats.list_namespaces_of_group, ResourceKind.CLUSTER, describe)
            for prefix in (V1, V2)  # Java's client uses the old one
        ),
        *pulsar_topics.routes(f"{V1}/persistent/{OLD_PLACE}/{{topic}}"),
        *pulsar_subscriptions.routes(f"{V1}/persistent/{OLD_PLACE}/{{topic}}"),
        *pulsar_namespaces.routes(V1, OLD_PLACE),
        *(
            AdminRoute("GET", f"{V1}/namespaces/{{tenant}}{end}",
                pulsar_namespaces.list_namespaces, ResourceKind.NAMESPACE, describe)
            for end in ("", "/{cluster}")
        ),
        *(
            replace(route, path=V1 + route.path.replace("/tenants", "/properties", 1))
            for route in pulsar_clusters.ROUTES  # tenants were properties
        ),
        *pulsar_non_persistent.routes(f"{V1}/non-persistent/{OLD_PLACE}"),
        *pulsar_transactions.routes(f"{V3}/transactions"),
    ]  # fmt: skip


def build_pulsar_app(gateway: PulsarGateway, authority: str = "") -> ASGIApp:
    """Return the application; it has no state of its own. Names of subscriptions have slashes.

    `authority` is a PEM file that signs the certificates of the other nodes, "" where the machine's
    authorities do.
    """
    return keep_escaped_slashes(_build(gateway, authority))


def _build(gateway: PulsarGateway, authority: str) -> Starlette:

    async def nothing_here(http_request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        reason = "there is nothing at this path" if status == 404 else "not by this method"
        return _response(error_reply(status, f"{http_request.url.path}: {reason}"))

    return Starlette(
        routes=[
            Route(route.path, _endpoint(gateway, route, authority), methods=route.methods.split())
            for route in all_routes()
        ],
        exception_handlers={HTTPException: nothing_here},
    )


def _response(reply: Reply) -> Response:
    response = Response(reply.content, reply.status, HEADERS, reply.media_type)
    # As they are written: Java's client looks for `X-Pulsar-PROPERTY` in just these letters.
    response.raw_headers += [(k.encode(), v.encode()) for k, v in reply.headers.items()]
    return response


def _endpoint(
    gateway: PulsarGateway, route: AdminRoute, authority: str
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(http_request: Request) -> Response:
        try:
            reply = await _answer(gateway, route, http_request, authority)
        except HttpError as problem:
            reply = error_reply(problem.status, str(problem))
            if problem.status in BODY_LEFT:
                reply = replace(reply, headers={"Connection": "close"})
        except NotOwner as problem:
            reply = _redirect(gateway, http_request, problem)
        except BrokerError as problem:
            reply = error_reply(status_of(problem), str(problem))
        except (LogError, MetaError) as problem:
            reply = error_reply(503, str(problem))
        except ClientDisconnect:
            reply = Reply(400)
        except Exception:
            log.exception("request.failed", extra={"listener": "http", "path": route.path})
            reply = error_reply(500, "a mistake of ours; the log has it")
        return _response(reply)

    return answer


def _redirect(gateway: PulsarGateway, request: Request, problem: NotOwner) -> Reply:
    """Send a client to the owner of the partition, once: the rest may be of yet another node."""
    url = request.url
    if request.query_params.get("authoritative") == "true":
        return error_reply(501, "the partitions of this topic are on several nodes: name one")
    listeners = gateway.broker.cluster.ownership.listeners(problem.node_id)
    address = listeners.get(url.scheme)
    if address is None:
        return error_reply(503, str(problem))
    target = url.replace(netloc=address).include_query_params(authoritative="true")
    return Reply(307, headers={"Location": str(target)})


async def _answer(
    gateway: PulsarGateway, route: AdminRoute, http_request: Request, authority: str
) -> Reply:
    check_origin(http_request, changes=http_request.method not in {"GET", "HEAD"})
    body = await read_body(http_request)
    request = AdminRequest(
        gateway,
        http_request,
        body,
        operation=route.operation,
        access=http_request.scope["access"],  # of login.py
        authority=authority,
    )
    resource = Resource(route.resource, str(_resource_name(request, route.resource)))
    is_coordinator = route.finds_coordinators and is_coordinator_topic(
        request.broker.cluster, request.name
    )
    if not is_coordinator and not route.is_public:
        await _check_access(request, resource)
    if gateway.catch_up is not None:
        await gateway.catch_up()
    if route.operation is Operation.READ and "subscription" in request.params:
        request.check_subscription(request.params["subscription"])
    try:
        answer = route.handler(request)
        if inspect.isawaitable(answer):
            answer = await answer
    except NotOwner:
        answer = await answer_for_partitions(request, route)
        if answer is None:
            raise
    reply = encode_reply(answer)
    if http_request.method not in {"GET", "HEAD"} and reply.status < 400:
        act = route.handler.__name__.replace("_", " ")
        request.access.record_act(act, resource, path=http_request.url.path)
        log.info(
            "admin.done",
            extra={
                "method": http_request.method,
                "path": http_request.url.path,
                "by": request.principal.name,
            },
        )
    return reply


async def _check_access(request: AdminRequest, resource: Resource) -> None:
    """Refuse what the client may not do: AccessDenied, or HttpError 404 for a missing tenant."""
    try:
        request.check_access(*resource)
    except AccessDenied:
        access, broker = request.access, request.broker
        if resource.kind not in IN_TENANT or not may_see_tenants(access, broker.namespaces):
            raise
        if request.gateway.catch_up is not None:
            await request.gateway.catch_up()
        tenant = resource.name.partition("/")[0]
        if is_missing_tenant(access, broker.namespaces, tenant):
            raise HttpError(404, "Tenant does not exist") from None
        raise


def _resource_name(request: AdminRequest, kind: ResourceKind) -> object:
    """Return the canonical name of the resource that the route protects."""
    if kind is ResourceKind.TOPIC:
        return request.name.topic
    if kind is ResourceKind.NAMESPACE:
        if "namespace" in request.params:
            return request.namespace
        return request.params["tenant"]
    return "cluster"
