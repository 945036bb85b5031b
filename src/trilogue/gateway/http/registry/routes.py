"""The API of Confluent's schema registry, below /schema-registry: its routes and its application.

A client's `schema.registry.url` is the address of the HTTP listener with this path. Each route
names the operation and the scope that are checked before its handler runs. Any node serves every
subject.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from trilogue.broker import errors as broker_errors
from trilogue.broker.access.authorizer import CLUSTER, Resource, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.schemas.subjects import find_resource
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.http.escaped_paths import ignore_last_slash, keep_escaped_slashes
from trilogue.gateway.http.registry import config, schemas, subjects
from trilogue.gateway.http.registry.registry_request import (
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    STORE_ERROR,
    RegistryError,
    RegistryRequest,
    RegistryRoute,
)
from trilogue.gateway.http.request_limits import HEADERS, HttpError, check_origin, read_body
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

log = logging.getLogger(__name__)

ROOT = "/schema-registry"
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
FORBIDDEN = 40301
INVALID = "Invalid schema"  # clients look for these words
CODES: dict[type[Exception], int] = {
    broker_errors.InvalidSchema: INVALID_SCHEMA,
    broker_errors.InvalidName: INVALID_SUBJECT,
    broker_errors.IncompatibleSchema: 409,
    broker_errors.UnknownSchema: 40403,
    broker_errors.AccessDenied: FORBIDDEN,
    broker_errors.InUse: 42205,
}


def all_routes() -> list[RegistryRoute]:
    """Return all routes."""
    return [*schemas.routes(), *subjects.routes(), *config.routes()]


def build_registry_app(gateway: ProtocolGateway) -> ASGIApp:
    """Return the application, for the paths below `ROOT`."""

    async def nothing_here(http_request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _error(status, f"HTTP {status}: {http_request.url.path}")

    routes = [
        Route(each.path, _endpoint(gateway, each), methods=[each.method]) for each in all_routes()
    ]
    app = Starlette(
        routes=[Mount(ROOT, routes=routes)], exception_handlers={HTTPException: nothing_here}
    )
    return ignore_last_slash(keep_escaped_slashes(app), ROOT)


def _endpoint(
    gateway: ProtocolGateway, route: RegistryRoute
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(http_request: Request) -> Response:
        try:
            return await _answer(gateway, route, http_request)
        except RegistryError as problem:
            return _error(problem.code, str(problem))
        except HttpError as problem:
            return _error(problem.status, str(problem))
        except (BrokerError, LogError, MetaError) as problem:
            return _error(CODES.get(type(problem), STORE_ERROR), str(problem))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("request.failed", extra={"listener": "http", "path": route.path})
            return _error(500, "a mistake of ours; the log has it")

    return answer


async def _answer(
    gateway: ProtocolGateway, route: RegistryRoute, http_request: Request
) -> Response:
    check_origin(http_request, changes=http_request.method != "GET")
    body = await read_body(http_request)
    request = RegistryRequest(gateway, http_request, body, route.operation)
    request.check_scope(route.scope)
    if gateway.catch_up is not None:
        await gateway.catch_up()
    result = route.handler(request)
    if inspect.isawaitable(result):
        result = await result
    if http_request.method in {"PUT", "DELETE"} or route.handler is subjects.register:
        resource = CLUSTER
        if "subject" in request.params:
            resource = Resource(ResourceKind.TOPIC, find_resource(request.params["subject"]))
        act = route.handler.__name__.replace("_", " ")
        request.access.record_act(act, resource, path=http_request.url.path)
    content = result if isinstance(result, bytes) else msgspec.json.encode(result)
    return Response(content, 200, HEADERS, MEDIA_TYPE)


def _error(code: int, message: str) -> Response:
    """Return an error; with 408 and 413 the body was not read, and the connection ends."""
    if code == INVALID_SCHEMA and not message.startswith((INVALID, "Empty schema")):
        message = f"{INVALID}: {message}"
    status = int(str(code)[:3])
    headers = {**HEADERS, "connection": "close"} if status in {408, 413} else HEADERS
    content = msgspec.json.encode({"error_code": code, "message": message})
    return Response(content, status, headers, MEDIA_TYPE)
