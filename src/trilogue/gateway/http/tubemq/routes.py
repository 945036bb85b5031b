"""TubeMQ's web API: the table of its methods, and the application.

    GET or POST /webapi.htm?type=op_query&method=...       what a real master serves
    GET or POST /broker.htm?type=op_query&method=...       what a real broker serves

Real servers have a port for each; here both paths have one listener and the same methods (where
both have one of the same name, the path decides on the shape). A method that changes anything needs
`confModAuthToken`, which the node created at its first start. As on a real server the method
decides, not `type`; and every response has the status 200.

    build_tubemq_app(gateway, token)     an ASGI application for both paths
"""

from __future__ import annotations

import hmac
import inspect
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue import __version__
from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, BrokerError
from trilogue.gateway.http.request_limits import (
    HEADERS,
    HttpError,
    check_origin,
    read_body,
)
from trilogue.gateway.http.tubemq import brokers as tubemq_brokers
from trilogue.gateway.http.tubemq import consume_control as tubemq_consume
from trilogue.gateway.http.tubemq import flow_control as tubemq_groups
from trilogue.gateway.http.tubemq import members as tubemq_live
from trilogue.gateway.http.tubemq import offsets as tubemq_positions
from trilogue.gateway.http.tubemq import topic_views as tubemq_topic_views
from trilogue.gateway.http.tubemq import topics as tubemq_topics
from trilogue.gateway.http.tubemq.web_api_request import (
    UNDEFINED,
    Answer,
    ItemError,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    broker_response,
    error_response,
    master_response,
)
from trilogue.gateway.tubemq.gateway import TubeGateway
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

log = logging.getLogger(__name__)

MASTER_PATH, BROKER_PATH = "/webapi.htm", "/broker.htm"
PATHS = (MASTER_PATH, BROKER_PATH)
PARAMETERS_MAX = 200
FORM = "application/x-www-form-urlencoded"
NO_METHOD = "Bad request from client, Please take with method parameter!"
UNSUPPORTED = "Bad request from client, unsupported method!"
NO_TOKEN = "Bad request from client, Parameter confModAuthToken is missing or value is blank!"  # noqa: S105
BAD_TOKEN = "Bad request from client, illegal access, unauthorized request!"  # noqa: S105

_SETTINGS = "set by the settings of the node"
_METRICS = "see /metrics"
_HISTORY = "positions of the past are not kept"
NOT_SERVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "admin_bath_add_broker_configure": _SETTINGS,
        "admin_batch_add_broker_configure": _SETTINGS,
        "admin_update_broker_configure": _SETTINGS,
        "admin_batch_update_broker_configure": _SETTINGS,
        "admin_delete_broker_configure": _SETTINGS,
        "admin_release_broker_autoforbidden_status": "no broker is forbidden by itself",
        "admin_rebalance_group_allocate": "partitions are shared out with every change",
        "admin_set_client_balance_group_consume_from_max": "its consumers choose where they begin",
        "admin_get_metrics_info": _METRICS,
        "admin_enable_stats": _METRICS,
        "admin_disable_stats": _METRICS,
        "admin_disable_all_stats": _METRICS,
        "admin_get_msgstore_stats": _METRICS,
        "admin_query_broker_memstore_info": _METRICS,
        "admin_snapshot_message": "read them with a consumer",
        "admin_backup_group_offsets": _HISTORY,
        "admin_get_group_history_offset": _HISTORY,
        "admin_set_offset_by_time": _HISTORY,
    }
)


def query_methods(request: WebApiRequest) -> Answer:
    """Return all methods, and which of them need the token."""
    del request
    return master_response(
        [{"method": method.name, "needAuth": method.changes} for method in TABLE.values()]
    )


def query_broker_methods(request: WebApiRequest) -> Answer:
    """Return the same, in the shape of a broker."""
    return broker_response(query_methods(request)["data"])


def query_broker_version(request: WebApiRequest) -> Answer:
    """Return the version of this server, in the shape of a broker."""
    del request
    version = [{"version": f"Trilogue {__version__}"}]
    return {"result": True, "errCode": 0, "errMsg": "Ok", "data": version}


_DESCRIBE_CLUSTER = ResourceKind.CLUSTER, Operation.DESCRIBE
TABLE: Final[Mapping[str, WebApiMethod]] = MappingProxyType(
    {
        method.name: method
        for method in (
            WebApiMethod("admin_get_methods", query_methods, *_DESCRIBE_CLUSTER),
            *tubemq_brokers.METHODS,
            *tubemq_topics.METHODS,
            *tubemq_topic_views.METHODS,
            *tubemq_live.METHODS,
            *tubemq_positions.METHODS,
            *tubemq_consume.METHODS,
            *tubemq_groups.METHODS,
        )
    }
)
AT_BROKER: Final[Mapping[str, WebApiMethod]] = MappingProxyType(
    {
        method.name: method
        for method in (
            WebApiMethod(
                "admin_get_methods", query_broker_methods, *_DESCRIBE_CLUSTER, of_broker=True
            ),
            WebApiMethod(
                "admin_query_server_version",
                query_broker_version,
                *_DESCRIBE_CLUSTER,
                of_broker=True,
            ),
        )
    }
)


def build_tubemq_app(gateway: TubeGateway, token: str) -> ASGIApp:
    """Return the application; it has no state of its own."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        http_request = Request(scope, receive)
        location = _find_master(gateway, http_request)
        if location:
            await Response(b"", 307, {**HEADERS, "location": location})(scope, receive, send)
            return
        status, answer = 200, Answer()
        try:
            answer = await _respond(gateway, token, http_request)
        except HttpError as problem:
            status, answer = problem.status, error_response(str(problem), problem.status)
        except (WebApiError, ItemError, BrokerError, LogError, MetaError) as problem:
            answer = error_response(str(problem))
        except ClientDisconnect:
            return
        except Exception:
            log.exception(
                "request.failed", extra={"listener": "http", "path": http_request.url.path}
            )
            status, answer = 500, error_response("a mistake of ours; the log has it", 500)
        headers = {**HEADERS, "connection": "close"} if status in {408, 413} else HEADERS
        response = Response(msgspec.json.encode(answer), status, headers, "application/json")
        await response(scope, receive, send)

    return app


def _find_master(gateway: TubeGateway, request: Request) -> str:
    """Return the URL of a request to a master at the node of the active one; empty: it is here."""
    ownership = gateway.broker.cluster.ownership
    if request.url.path != MASTER_PATH or ownership.is_master:
        return ""
    address = ownership.listeners(ownership.master_id).get(request.url.scheme)
    return str(request.url.replace(netloc=address)) if address else ""


async def _respond(gateway: TubeGateway, token: str, http_request: Request) -> Answer:
    if http_request.method not in {"GET", "POST"}:
        raise HttpError(405, "GET or POST")
    params = await _read_parameters(http_request)
    name = params.get("method", "").strip()
    if not name:
        return error_response(NO_METHOD)
    at_broker = http_request.url.path == BROKER_PATH
    method = (AT_BROKER.get(name) if at_broker else None) or TABLE.get(name)
    if method is None:
        why = NOT_SERVED.get(name)
        if why is not None:
            return error_response(f"{name} is not served here: {why}")
        return error_response(f"Unsupported method {name[:100]}" if at_broker else UNSUPPORTED)
    server = http_request.scope.get("server") or ("", 0)
    request = WebApiRequest(
        gateway,
        params,
        http_request.scope["access"],  # of login.py
        method.operation,
        web_port=server[1] or UNDEFINED,
    )
    if method.changes:
        check_origin(http_request, changes=True)
        _check_token(request, token)
        _ = request.user
    _check_access(request, method)
    answer = method.handler(request)
    if inspect.isawaitable(answer):
        answer = await answer
    if method.changes:
        _record_act(request, method, answer)
    return answer


def _record_act(request: WebApiRequest, method: WebApiMethod, answer: Answer) -> None:
    """Write the lines of the audit log for a change, unless none of its items was done."""
    items = [each for each in answer.get("data", ()) if "success" in each]
    failed = sum(not each["success"] for each in items)
    if not answer["result"] or (items and failed == len(items)):
        return
    details = {"by": request.user, **({"failed": failed} if failed else {})}
    for resource in _named_resources(request, method):
        request.access.record_act(method.name, resource, **details)


def _check_access(request: WebApiRequest, method: WebApiMethod) -> None:
    """Check access to the named resources; handlers check those that they find."""
    for resource in _named_resources(request, method):
        if not request.is_allowed(*resource):
            raise AccessDenied(method.operation, resource)


def _named_resources(request: WebApiRequest, method: WebApiMethod) -> list[Resource]:
    kind = method.resource
    if kind is ResourceKind.CLUSTER:
        return [CLUSTER]
    names = [str(name) for name in request.topics] if kind is ResourceKind.TOPIC else request.groups
    return [Resource(kind, name) for name in names]


def _check_token(request: WebApiRequest, token: str) -> None:
    given = request.text("confModAuthToken", "")
    if not given:
        raise WebApiError(NO_TOKEN)
    if not hmac.compare_digest(given.encode(), token.encode()):
        request.gateway.audit.login_failed(
            request.principal.name,
            "http",
            request.access.host,
            method="confModAuthToken",
            reason=BAD_TOKEN,
        )
        raise WebApiError(BAD_TOKEN)


async def _read_parameters(http_request: Request) -> dict[str, str]:
    """Return the parameters of the URL and, with POST, of a form; the first of a name counts."""
    texts = [http_request.url.query]
    if http_request.method == "POST":
        body = await read_body(http_request)
        if http_request.headers.get("content-type", FORM).split(";")[0].strip().lower() != FORM:
            raise HttpError(415, f"a body is {FORM}")
        texts.append(body.decode(errors="replace"))
    found: dict[str, str] = {}
    for text in texts:
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
        except ValueError:
            raise HttpError(400, f"at most {PARAMETERS_MAX} parameters") from None
        for key, value in pairs:
            found.setdefault(key, value)
    return found
