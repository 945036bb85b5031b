"""A schema registry with Confluent's REST API: schemas by id, and by subject and version."""

from __future__ import annotations

import base64
import os
import ssl
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trilogue.client.kafka.security import Security
from trilogue.spark.errors import OptionError, SchemaUnavailable
from trilogue.spark.payload.registry_http import NOT_FOUND, OK, fetch_json

ATTEMPTS = 3
PAUSE_S = 0.5
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
UNKNOWN_S = 30.0
"""How long an id that the registry does not know is not requested again."""
UNKNOWN_MAX = 1_000
SERIALIZED = "serialized"
"""The format in which Protobuf is a descriptor in base64, not a text."""


class Reference(NamedTuple):
    """Where the definition of a name that a schema uses is: a version of a subject."""

    name: str
    subject: str
    version: int


class SubjectVersion(NamedTuple):
    """A schema of the registry; `language` is AVRO, JSON or PROTOBUF."""

    schema_id: int
    language: str
    text: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentRegistry:
    """How a registry is reached; goes to workers."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: str = ""
    security: Security | None = None
    """The connection of Kafka's client, whose authorities are trusted where `ca` is not given."""

    @classmethod
    def parse(cls, text: str, *, user_info: str, token: str, ca: str) -> ConfluentRegistry:
        """Check addresses `http://[user:password@]host:port[/path][,…]`; OptionError."""
        urls = []
        for each in (one.strip().rstrip("/") for one in text.split(",")):
            parts = urllib.parse.urlsplit(each)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise OptionError("option 'schema.registry.url' takes http://host:port[/path]")
            if parts.username is not None:
                if user_info or token:
                    raise OptionError("option 'schema.registry.url': a login is given twice")
                names = (parts.username, parts.password or "")
                user_info = ":".join(urllib.parse.unquote(name) for name in names)
            host = parts.netloc.rpartition("@")[2]
            urls.append(urllib.parse.urlunsplit(parts._replace(netloc=host)))
        if user_info and token:
            raise OptionError("schema.registry: give a user or a token, not both")
        if user_info and ":" not in user_info:
            raise OptionError("option 'schema.registry.basic.auth.user.info' takes user:password")
        return cls(urls=tuple(urls), user_info=user_info, token=token, ca=ca)

    def fetch_version(
        self, subject: str, version: int | str = "latest", layout: str = ""
    ) -> SubjectVersion | None:
        """Return a version of a subject, None where there is none; SchemaUnavailable."""
        name = urllib.parse.quote(subject, safe="")
        return self._fetch(f"/subjects/{name}/versions/{version}", layout)

    def fetch_versions(self, subject: str) -> list[int]:
        """Return the numbers of the versions of a subject, the oldest first; SchemaUnavailable."""
        body = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions")
        if not isinstance(body, list | None) or not all(
            isinstance(each, int) for each in body or ()
        ):
            raise self._unavailable("an answer without versions")
        return sorted(body or ())

    def fetch_id(self, schema_id: int, layout: str = "") -> SubjectVersion | None:
        """Return the schema of an id, None where the registry has none; SchemaUnavailable."""
        return self._fetch(f"/schemas/ids/{schema_id}", layout, schema_id)

    def fetch_reference(self, reference: Reference, layout: str = "") -> SubjectVersion:
        """Return the schema that a reference names; SchemaUnavailable."""
        found = self.fetch_version(reference.subject, reference.version, layout)
        if found is None:
            raise SchemaUnavailable(
                f"version {reference.version} of subject {reference.subject}, which a schema uses, "
                f"is not in the registry {self.urls[0]}"
            )
        return found

    def _fetch(self, path: str, layout: str, schema_id: int = -1) -> SubjectVersion | None:
        query = f"?format={layout}" if layout else ""
        body = self._get(path + query)
        if body is None:
            return None
        try:
            references = [
                Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in body.get("references") or ()
            ]
            return SubjectVersion(
                int(body.get("id", schema_id)),
                str(body.get("schemaType") or "AVRO").upper(),
                str(body["schema"]),
                tuple(references),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise self._unavailable(f"an answer without a schema ({problem})") from None

    def _get(self, path: str) -> Any:
        """Return the JSON of an answer, None for what does not exist; each address is tried."""
        problem: object = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_S * attempt)
            for url in self.urls:
                try:
                    status, body = self._get_from(url, path)
                except (OSError, ValueError) as error:
                    problem = error
                    continue
                if status == OK:
                    return body
                if status == NOT_FOUND and _is_registrys(body):
                    return None
                detail = body.get("message", "") if isinstance(body, dict) else ""
                problem = f"HTTP {status} {str(detail)[:200]}".strip()
                if status not in RETRIED:
                    raise self._unavailable(problem)
        raise self._unavailable(problem)

    def _get_from(self, url: str, path: str) -> tuple[int, Any]:
        """Return the status and the JSON of an answer, None for what is no JSON of a refusal."""
        authorization = ""
        if self.token:
            authorization = f"Bearer {self.token}"
        elif self.user_info:
            authorization = f"Basic {base64.b64encode(self.user_info.encode()).decode()}"
        return fetch_json(url + path, authorization=authorization, tls=self._tls())

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca:
            return ssl.create_default_context(cafile=self.ca)
        return None if self.security is None else self.security.make_context()

    def _unavailable(self, problem: object) -> SchemaUnavailable:
        return SchemaUnavailable(
            f"the schema registry {', '.join(self.urls)} gives no schema: {problem}; check option "
            "'schema.registry.url' and its login"
        )


def _is_registrys(body: Any) -> bool:
    """Whether a 404 is the registry's (404xx): that of another server is a wrong address."""
    code = body.get("error_code") if isinstance(body, dict) else None
    return isinstance(code, int) and code // 100 == NOT_FOUND


class SchemaCache:
    """Schemas by id, which never change; ids that are unknown are requested again later."""

    def __init__(self, registry: ConfluentRegistry, layout: str) -> None:
        self._registry, self._layout = registry, layout
        self._found: dict[int, SubjectVersion] = {}
        self._unknown: dict[int, float] = {}

    def find_schema(self, schema_id: int) -> SubjectVersion | None:
        """Return the schema of an id, None where the registry has none; SchemaUnavailable."""
        found = self._found.get(schema_id)
        if found is None and time.monotonic() >= self._unknown.get(schema_id, 0.0):
            found = self._registry.fetch_id(schema_id, self._layout)
            if found is not None:
                self._found[schema_id] = found
                return found
            if len(self._unknown) >= UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown[schema_id] = time.monotonic() + UNKNOWN_S
        return found


_caches: dict[tuple[int, ConfluentRegistry, str], SchemaCache] = {}


def schema_cache(registry: ConfluentRegistry, layout: str) -> SchemaCache:
    """Return this process's cache of a registry: Spark's workers keep it from task to task."""
    key = (os.getpid(), registry, layout)
    if key not in _caches:
        _caches[key] = SchemaCache(registry, layout)
    return _caches[key]
