"""A table of APIs: what an API needs, its codec in each version, and the look-up of both."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.context import Handler
from trilogue.wire.kafka.api import MESSAGES, NAMES, OWN_KEYS
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.metadata.api_versions import ApiVersion

API_VERSIONS: Final = 18
MIB, GIB = 1 << 20, 1 << 30
_PACKAGE = __name__.rpartition(".")[0]


class ApiSpec(NamedTuple):
    """One API: its key, the versions served, its handler, and the access it needs."""

    key: int
    served: tuple[int, int]
    handler: str  # module and function in this folder, imported with the first request
    resource: ResourceKind
    operation: Operation
    frame_bytes_max: int = 8 * MIB
    elements_max: int = 10_000
    advertised: bool = True
    encode_in_thread: bool = False

    @property
    def name(self) -> str:
        """Kafka's name of the API, such as `OffsetCommit`."""
        return NAMES[self.key][0]

    @property
    def request(self) -> type:
        """The class of its requests."""
        return MESSAGES[self.key][0]

    @property
    def response(self) -> type:
        """The class of its responses."""
        return MESSAGES[self.key][1]

    def load_handler(self) -> Handler:
        """Return the function that answers its requests; imports its module."""
        module, _, function = self.handler.partition(":")
        handler: Handler = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), function)
        return handler


class VersionedApi:
    """One API in one version: its handler and compiled codec, loaded at the first request."""

    __slots__ = (
        "decode",
        "encode",
        "flexible_reply",
        "handler",
        "key",
        "name",
        "response",
        "spec",
        "throttles",
        "version",
    )

    def __init__(self, spec: ApiSpec, version: int) -> None:
        self.spec = spec
        self.key = spec.key
        self.name = spec.name
        self.version = version
        self.handler = spec.load_handler()
        request, self.response = MESSAGES[spec.key]
        known = table(self.response)
        self.decode: Callable[..., tuple[Any, int]] = decoder(request, version, spec.elements_max)
        self.encode: Callable[[Any, bytearray], None] = encoder(self.response, version)
        # Whether its responses have `throttle_time_ms`, in any version.
        self.throttles = any(each.name == "throttle_time_ms" for each in known.fields)
        # ApiVersions responses always have header v0: the client does not know our versions yet.
        self.flexible_reply = spec.key != API_VERSIONS and version >= known.flexible


class ApiTable:
    """The APIs of a listener; a version's codec is compiled when a client first uses it."""

    def __init__(self, specs: Iterable[ApiSpec]) -> None:
        self.specs = {spec.key: spec for spec in specs}
        self._loaded: dict[int, VersionedApi] = {}
        self.cached_api = self._loaded.get  # the lookup of `find_api`, without compiling
        self._versions: dict[bool, list[ApiVersion]] = {}

    def find_api(self, number: int) -> VersionedApi | None:
        """Return the API for (key << 16 | version), or None if it is not served."""
        return self._loaded.get(number) or self._load_api(number)

    def _load_api(self, number: int) -> VersionedApi | None:
        key, version = number >> 16, number & 0xFFFF
        spec = self.specs.get(key)
        if spec is None or not spec.served[0] <= version <= spec.served[1]:
            return None
        # A thread may load it at the same time (`load_all`): the first stays.
        return self._loaded.setdefault(number, VersionedApi(spec, version))

    def load_all(self) -> Iterator[None]:
        """Load each API in its newest version, one at each step; a step takes 1 to 20 ms."""
        for spec in self.specs.values():
            self.find_api(spec.key << 16 | spec.served[1])
            yield

    def advertised_versions(self, *, own: bool = False) -> list[ApiVersion]:
        """Return the version ranges that ApiVersions lists; `own`: to Trilogue's client."""
        if own not in self._versions:
            self._versions[own] = [
                ApiVersion(api_key=spec.key, min_version=spec.served[0], max_version=spec.served[1])
                for spec in self.specs.values()
                if spec.advertised and (own or spec.key < OWN_KEYS)
            ]
        return self._versions[own]
