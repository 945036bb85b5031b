"""TubeMQ's web API: every method of it in one table, and the application behind.

    GET or POST /webapi.htm?type=op_query&method=...       what a real master answers
    GET or POST /broker.htm?type=op_query&method=...       what a real broker answers

Real servers have a port for each; here both paths are at the HTTP door and know the same methods
(where both have one of a name, the path decides on the shape). A method that changes anything needs
`confModAuthToken`, which the node made at its first start. As on a real server the method decides,
not `type`; and every answer has the status 200.

    build_tubemq_app(door, token)     an ASGI application for both paths
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
from trilogue.broker.access import ANONYMOUS, CLUSTER, Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, BrokerError
from trilogue.gateway.http import (
    tubemq_brokers,
    tubemq_consume,
    tubemq_groups,
    tubemq_live,
    tubemq_positions,
    tubemq_topic_views,
    tubemq_topics,
)
from trilogue.gateway.http.incoming import HEADERS, Problem, check_origin, read_body
from trilogue.gateway.http.tubemq_asked import (
    UNDEFINED,
    Answer,
    Asked,
    Failed,
    Row,
    Wrong,
    ok,
    refused,
    success,
)
from trilogue.gateway.tubemq.door import TubeDoor
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

_SETTINGS = "the settings of the node say it"
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
        "admin_set_client_balance_group_consume_from_max": "its consumers say where they begin",
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


def methods(asked: Asked) -> Answer:
    """Name all methods, and say which of them need the token."""
    del asked
    return ok([{"method": row.name, "needAuth": row.changes} for row in TABLE.values()])


def methods_of_broker(asked: Asked) -> Answer:
    """The same, in the shape of a broker."""
    return success(methods(asked)["data"])


def version_of_broker(asked: Asked) -> Answer:
    """Tell what this is, in the shape of a broker."""
    del asked
    version = [{"version": f"Trilogue {__version__}"}]
    return {"result": True, "errCode": 0, "errMsg": "Ok", "data": version}


_ASK = ResourceKind.CLUSTER, Operation.DESCRIBE
TABLE: Final[Mapping[str, Row]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Row("admin_get_methods", methods, *_ASK),
            *tubemq_brokers.ROWS,
            *tubemq_topics.ROWS,
            *tubemq_topic_views.ROWS,
            *tubemq_live.ROWS,
            *tubemq_positions.ROWS,
            *tubemq_consume.ROWS,
            *tubemq_groups.ROWS,
        )
    }
)
AT_BROKER: Final[Mapping[str, Row]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Row("admin_get_methods", methods_of_broker, *_ASK, of_broker=True),
            Row("admin_query_server_version", version_of_broker, *_ASK, of_broker=True),
        )
    }
)


def build_tubemq_app(door: TubeDoor, token: str) -> ASGIApp:
    """Make the application; it has no state of its own."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        status, answer = 200, Answer()
        try:
            answer = await _answer(door, token, request)
        except Problem as problem:
            status, answer = problem.status, refused(str(problem), problem.status)
        except (Wrong, Failed, BrokerError, LogError, MetaError) as problem:
            answer = refused(str(problem))
        except ClientDisconnect:
            return
        except Exception:
            log.exception("request.failed", extra={"door": "http", "path": request.url.path})
            status, answer = 500, refused("a mistake of ours; the log has it", 500)
        headers = {**HEADERS, "connection": "close"} if status in {408, 413} else HEADERS
        response = Response(msgspec.json.encode(answer), status, headers, "application/json")
        await response(scope, receive, send)

    return app


async def _answer(door: TubeDoor, token: str, request: Request) -> Answer:
    if request.method not in {"GET", "POST"}:
        raise Problem(405, "GET or POST")
    params = await _parameters(request)
    name = params.get("method", "").strip()
    if not name:
        return refused(NO_METHOD)
    at_broker = request.url.path == BROKER_PATH
    row = (AT_BROKER.get(name) if at_broker else None) or TABLE.get(name)
    if row is None:
        why = NOT_SERVED.get(name)
        if why is not None:
            return refused(f"{name} is not served here: {why}")
        return refused(f"Unsupported method {name[:100]}" if at_broker else UNSUPPORTED)
    server = request.scope.get("server") or ("", 0)
    asked = Asked(door, params, ANONYMOUS, row.operation, web_port=server[1] or UNDEFINED)
    if row.changes:
        check_origin(request, changes=True)
        _check_token(asked, token, request)
        _ = asked.user
    _check_access(asked, row)
    answer = row.handler(asked)
    if inspect.isawaitable(answer):
        answer = await answer
    if row.changes:
        log.info(
            "admin.done",
            extra={"method": name, "by": asked.user, "address": _address(request)},
        )
    return answer


def _check_access(asked: Asked, row: Row) -> None:
    """Handlers ask for each topic and group that they touch; this one is for the cluster."""
    kind = row.resource
    if kind is ResourceKind.CLUSTER:
        if not asked.door.authorizer.allowed(asked.principal, row.operation, CLUSTER):
            raise AccessDenied(row.operation, CLUSTER)
        return
    names = [str(name) for name in asked.topics] if kind is ResourceKind.TOPIC else asked.groups
    for name in names:
        if not asked.allowed(kind, name):
            raise AccessDenied(row.operation, Resource(kind, name))


def _check_token(asked: Asked, token: str, request: Request) -> None:
    given = asked.text("confModAuthToken", "")
    if not given:
        raise Wrong(NO_TOKEN)
    if not hmac.compare_digest(given.encode(), token.encode()):
        log.warning("admin.refused", extra={"door": "http", "address": _address(request)})
        raise Wrong(BAD_TOKEN)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _parameters(request: Request) -> dict[str, str]:
    """What stands in the URL and, with POST, in a form; the first of a name counts."""
    texts = [request.url.query]
    if request.method == "POST":
        body = await read_body(request)
        if request.headers.get("content-type", FORM).split(";")[0].strip().lower() != FORM:
            raise Problem(415, f"a body is {FORM}")
        texts.append(body.decode(errors="replace"))
    found: dict[str, str] = {}
    for text in texts:
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
        except ValueError:
            raise Problem(400, f"at most {PARAMETERS_MAX} parameters") from None
        for key, value in pairs:
            found.setdefault(key, value)
    return found
