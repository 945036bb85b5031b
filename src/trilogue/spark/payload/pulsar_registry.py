"""The schema of a topic in Pulsar's registry, over HTTP."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from trilogue.client.pulsar.topic_names import full_name, http_path
from trilogue.spark.errors import OptionError
from trilogue.spark.payload.registered_schema import RegisteredSchema

TIMEOUT_S = 20.0
ANSWER_MAX = 8 << 20
NOT_FOUND = 404


def fetch_schema(
    url: str, topic: str, token: str | None, tls: ssl.SSLContext | None
) -> RegisteredSchema:
    """Return the latest schema of a topic, whose type is as Pulsar names it; OptionError."""
    if not url.startswith(("http://", "https://")):
        raise OptionError(f"option 'admin.url' takes http://host:port, not {url!r}")
    _, _, path = http_path(full_name(topic)).partition("/")
    request = urllib.request.Request(f"{url.rstrip('/')}/admin/v2/schemas/{path}/schema")  # noqa: S310
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:  # noqa: S310
            body: Any = json.loads(answer.read(ANSWER_MAX))
        return RegisteredSchema(str(body["type"]), str(body["data"]))
    except urllib.error.HTTPError as refused:
        refused.close()
        reason = "has no schema there" if refused.code == NOT_FOUND else f"HTTP {refused.code}"
        raise OptionError(
            f"topic {topic}: {reason} ({url}); give option 'payloadSchema'"
        ) from refused
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise OptionError(
            f"no schema registry answered at {url} ({problem}): check option 'admin.url', or give "
            "option 'payloadSchema'"
        ) from problem
