"""Clients of this node's own protocols, each in the name of one client of HTTP.

WebSockets and the REST proxies are clients of Pulsar's and Kafka's protocols inside of the node.
Such a client logs in again, by the credentials of its HTTP request: what it may do, its quotas, and
the end of its session are those of the protocol's own connections. Connections to this node are
socket pairs that a listener accepts for the address of the HTTP client; those to other nodes are
made by TCP, as those of any client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from starlette.types import Scope

from trilogue.broker.access.client_access import ClientAccess
from trilogue.client.connection import Dial
from trilogue.client.kafka.client import KafkaClient
from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.entry_memory import EntryMemory
from trilogue.gateway.http.login import decode_basic
from trilogue.gateway.http.request_limits import CREDENTIALS, HttpError
from trilogue.gateway.listener import Listener

PULSAR: Final = ("pulsar", "pulsar-ssl")
KAFKA: Final = ("kafka", "kafka-ssl")
KAFKA_WITH_LOGIN: Final = ("kafka-sasl", "kafka-sasl-ssl")
PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class HostAndPort(Protocol):
    """An address that clients are given."""

    @property
    def host(self) -> str:
        """The host, without brackets."""

    @property
    def port(self) -> int:
        """The port."""


class ClientIdentity(msgspec.Struct, frozen=True):
    """The address of a client, and what it logs in with, if logins are required."""

    host: str
    authorization: str = ""


class NodeClients:
    """Makes the clients.

    `listeners` are the node's by name, `advertised` the addresses that clients are given for them,
    and `sasl_mechanisms` those of Kafka's listeners with a login. `authority` is a PEM file that
    signs the certificates of the other nodes, "" where the machine's authorities do.
    """

    def __init__(
        self,
        listeners: Mapping[str, Listener],
        advertised: Mapping[str, HostAndPort],
        *,
        requires_login: bool,
        anonymous: str,
        sasl_mechanisms: Callable[[], Sequence[str]],
        authority: str = "",
    ) -> None:
        self._listeners = listeners
        self._advertised = advertised
        self.requires_login = requires_login
        self._anonymous = anonymous
        self._sasl_mechanisms = sasl_mechanisms
        self._authority = authority

    def identify(self, scope: Scope) -> ClientIdentity:
        """Return whose request it is; raises HttpError 401 where that is known by TLS only."""
        access: ClientAccess = scope["access"]
        credentials: list[str] = scope[CREDENTIALS] if self.requires_login else []
        if self.requires_login and not credentials and access.principal.name != self._anonymous:
            raise HttpError(401, "a password or a token is needed here, besides the certificate")
        return ClientIdentity(access.host, _normalize(credentials[0]) if credentials else "")

    def make_pulsar(
        self, identity: ClientIdentity, entry_memory: EntryMemory | None = None
    ) -> PulsarClient:
        """Return a client of Pulsar's protocol; raises HttpError 503 where it is not served."""
        name = self._choose_listener(PULSAR, "Pulsar's protocol has no listener here")
        scheme = "pulsar+ssl" if name.endswith("-ssl") else "pulsar"
        return PulsarClient(
            f"{scheme}://{self._address(name)}",
            dial=self._make_dial(PULSAR, identity),
            tls_trust_certs_file_path=self._authority,
            entry_memory=entry_memory,
            **_pulsar_login(identity),
        )

    def make_kafka(self, identity: ClientIdentity, client_id: str) -> KafkaClient:
        """Return a client of Kafka's protocol; raises HttpError 503 where it is not served."""
        names = KAFKA_WITH_LOGIN if self.requires_login else KAFKA
        name = self._choose_listener(names, f"none of the listeners {', '.join(names)} is open")
        protocol = {True: "ssl", False: "plaintext"}[name.endswith("-ssl")]
        if self.requires_login:
            protocol = f"sasl_{protocol}"
        return KafkaClient(
            self._address(name),
            client_id=client_id,
            security_protocol=protocol,
            ssl_ca_location=self._authority,
            dial=self._make_dial((name,), identity),
            **self._kafka_login(identity),
        )

    def _choose_listener(self, names: Sequence[str], reason: str) -> str:
        for name in names:
            if name in self._listeners:
                return name
        raise HttpError(503, reason)

    def _address(self, name: str) -> str:
        host, port = self._advertised[name].host, self._advertised[name].port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _make_dial(self, names: Sequence[str], identity: ClientIdentity) -> Dial:
        """Return what connects to a listener of this node by a socket pair."""

        async def dial(host: str, port: int) -> Any:
            for name in names:
                address = self._advertised.get(name)
                if address is not None and (address.host, address.port) == (host, port):
                    return await self._listeners[name].connect_local((identity.host, 0))
            return None

        return dial

    def _kafka_login(self, identity: ClientIdentity) -> dict[str, Any]:
        scheme, _, text = identity.authorization.partition(" ")
        if not self.requires_login:
            return {}
        if scheme.lower() == "bearer":
            return {"sasl_mechanism": "OAUTHBEARER", "oauth_token": text.strip}
        if not scheme:
            raise HttpError(401, "Kafka's listeners with a login need a password or a token")
        user, password = decode_basic(text)
        served = self._sasl_mechanisms()
        mechanism = next((each for each in PASSWORD_MECHANISMS if each in served), "PLAIN")
        return {
            "sasl_mechanism": mechanism,
            "sasl_username": user,
            "sasl_password": password.decode(),
        }


def _normalize(authorization: str) -> str:
    """Return an Authorization header in one spelling: clients are shared and counted by it."""
    scheme, _, text = authorization.partition(" ")
    return f"{scheme.lower()} {text.strip()}"


def _pulsar_login(identity: ClientIdentity) -> dict[str, Any]:
    scheme, _, text = identity.authorization.partition(" ")
    if scheme.lower() == "bearer":
        return {"token": text.strip()}
    if not scheme:
        return {}
    user, password = decode_basic(text)
    return {"username": user, "password": password.decode()}
