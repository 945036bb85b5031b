"""The HTTP service of a Pulsar cluster, which has the sizes of topics."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trilogue.spark.errors import OptionError
from trilogue.spark.protocols.service_url import PULSAR, ServiceUrl

if TYPE_CHECKING:
    import ssl

URL, TOKEN = "admin.url", "admin.token"


@dataclass(frozen=True, slots=True)
class Administration:
    """Where it is, and how a reader logs in. `ca`: PEM file of its authorities."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    def mean_entry_size(self, full_partition: str) -> float | None:
        """Return the bytes of an entry on average; None of an empty partition. OptionError."""
        from trilogue.client.pulsar.topic_names import http_path
        from trilogue.spark.payload.registry_http import OK, fetch_json

        try:
            status, found = fetch_json(
                f"{self.url}/admin/v2/{http_path(full_partition)}/internalStats",
                authorization="" if self.token is None else f"Bearer {self.token}",
                tls=self._make_context(),
            )
            if status == OK:
                return _find_mean(found)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise OptionError(
                f"no sizes of topics at {self.url} ({problem}): check option {URL!r}, or use "
                "maxOffsetsPerTrigger"
            ) from problem
        raise OptionError(
            f"{full_partition}: no sizes at {self.url} (HTTP {status}): option {TOKEN!r} needs the "
            "right to read its statistics; or use maxOffsetsPerTrigger"
        )

    def _make_context(self) -> ssl.SSLContext | None:
        if self.ca is None:
            return None
        from trilogue.client.tls import make_client_context

        return make_client_context(self.ca)


def _find_mean(stats: dict[str, Any]) -> float | None:
    count, size = int(stats["numberOfEntries"]), int(stats["totalSize"])
    return size / count if count > 0 and size > 0 else None


def parse_administration(
    options: MutableMapping[str, str], service: ServiceUrl | None
) -> Administration | None:
    """Return the service of a Pulsar cluster that is read by its protocol; OptionError.

    Its options are removed where no payload needs them.
    """
    if service is None or service.protocol != "pulsar" or URL not in options:
        return None
    url, token = options[URL].strip().rstrip("/"), options.get(TOKEN)
    if not url.startswith(("http://", "https://")):
        raise OptionError(f"option {URL!r} takes http://host:port, not {url!r}")
    if "payload" not in options:
        del options[URL]
        options.pop(TOKEN, None)
    return Administration(url, token, dict(service.settings).get(f"{PULSAR}tlsTrustCertsFilePath"))
