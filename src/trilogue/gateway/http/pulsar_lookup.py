"""Where a topic is, over HTTP: /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}.

For clients whose service URL is http://. One node owns everything, so the answer is always this
one's address; the topic need not be there yet, its namespace must.
"""

from __future__ import annotations

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.naming import check_kept
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked, Reply, Row
from trilogue.gateway.http.pulsar_clusters import web_url
from trilogue.gateway.http.pulsar_namespaces import BUNDLE

OLD = "{tenant}/{cluster}/{namespace}"
PLACES = (("topic", "{tenant}/{namespace}"), ("topic", OLD), ("destination", OLD))


def lookup(asked: Asked) -> object:
    """Tell the address of the door."""
    _check(asked)
    url = asked.door.url
    return {"brokerUrl": url, "httpUrl": web_url(asked), "nativeUrl": url, "brokerUrlSsl": ""}


def bundle(asked: Asked) -> object:
    """Tell which part of its namespace a topic is in: there is one."""
    _check(asked)
    return Reply(200, BUNDLE.encode(), "text/plain")


def _check(asked: Asked) -> None:
    name = asked.name
    check_kept(name)
    listener = asked.request.query_params.get("listenerName")
    listener = listener or asked.request.headers.get("x-pulsar-listenername")
    if listener:
        raise Problem(404, f"there is no listener {listener[:60]!r}")
    if not asked.broker.namespaces.exists(name.topic.home):
        raise Problem(404, "Namespace not found")


def rows(prefix: str) -> list[Row]:
    """The rows of lookups."""
    kind, describe = ResourceKind.TOPIC, Operation.DESCRIBE
    return [
        Row("GET", f"{prefix}/{word}/{{domain}}/{place}/{{topic}}{end}", handler, kind, describe)
        for word, place in PLACES
        for end, handler in (("", lookup), ("/bundle", bundle))
    ]
