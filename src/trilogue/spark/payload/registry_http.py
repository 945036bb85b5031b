"""One GET of a schema registry: status and JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl

TIMEOUT_S: Final = 20.0
ANSWER_MAX: Final = 8 << 20
OK: Final = 200
NOT_FOUND: Final = 404


def fetch_json(
    url: str, *, authorization: str = "", tls: ssl.SSLContext | None = None
) -> tuple[int, Any]:
    """Return the status and the JSON of an answer, None for a refusal without JSON.

    Raises OSError, and ValueError for a schema that is no JSON.
    """
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url)  # noqa: S310 -- its caller checks the scheme
    if authorization:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:  # noqa: S310
            return OK, json.loads(answer.read(ANSWER_MAX))
    except urllib.error.HTTPError as refused:
        with refused:
            text = refused.read(ANSWER_MAX)
        with suppress(ValueError):
            return refused.code, json.loads(text)
        return refused.code, None
