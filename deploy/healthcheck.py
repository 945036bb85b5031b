"""Ends with 0 while the node of this container serves: /readyz by HTTP, or by HTTPS."""

from __future__ import annotations

import ssl
import sys
from urllib.error import URLError
from urllib.request import urlopen

ADDRESSES = sys.argv[1:] or ["http://127.0.0.1:8080", "https://127.0.0.1:8443"]
LIMIT_S = 4  # of the 5 s that the image's check may take
OWN_CERTIFICATE = ssl._create_unverified_context()  # noqa: S323, SLF001 - it is this container's


def is_ready(address: str) -> bool:
    """Return whether the node at an address serves."""
    try:
        with urlopen(f"{address}/readyz", timeout=LIMIT_S, context=OWN_CERTIFICATE) as answer:  # noqa: S310
            return answer.status == 200
    except (URLError, OSError):
        return False


sys.exit(not any(map(is_ready, ADDRESSES)))
