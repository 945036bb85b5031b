"""Option `url`: the protocol and address of a cluster, and how its client logs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trilogue.client.errors import ClientError
from trilogue.spark.errors import OptionError
from trilogue.spark.options import parse_boolean

PULSAR_SCHEMES = ("pulsar", "pulsar+ssl")
SCHEMES = ("kafka", *PULSAR_SCHEMES, "tubemq")
PULSAR, TUBEMQ = "pulsar.client.", "tubemq."
GROUP_PREFIX = "tubemq.groupPrefix"
SERVICE_OPTIONS = {
    "url": "kafka://host:port (as kafka.bootstrap.servers), pulsar://host:port, "
    "pulsar+ssl://host:port or tubemq://host:port of the master: the protocol by which topics are "
    "read",
    "pulsar.client.authPluginClassName": "url=pulsar: AuthenticationToken, AuthenticationBasic or "
    "AuthenticationTls, as Pulsar's clients have them",
    "pulsar.client.authParams": "its parameters: a token, file:///PATH of one, userId:password",
    "pulsar.client.tlsTrustCertsFilePath": "PEM file of the authorities, at the same path on each "
    "executor",
    "pulsar.client.tlsCertificateFilePath": "PEM file of the client's certificate",
    "pulsar.client.tlsKeyFilePath": "PEM file of its key",
    "pulsar.client.tlsEnableHostnameVerification": "true (default), or false: any server's name",
    "tubemq.user": "url=tubemq: the user whose requests are signed",
    "tubemq.password": "the user's password",
    "tubemq.tls": "true: connections with TLS (default false)",
    "tubemq.tlsTrustCertsFilePath": "PEM file of the authorities, on each executor",
    GROUP_PREFIX: "the names of the groups that read begin with it (default trilogue-spark)",
}
TUBEMQ_NAMES = {
    "tubemq.user": "user",
    "tubemq.password": "password",
    "tubemq.tlsTrustCertsFilePath": "tls_trust_certs_file_path",
}
"""Options, and what Trilogue's client calls them."""


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A cluster that is read by Pulsar's or TubeMQ's protocol.

    `settings`: the options of its client as they were given, pairs of name and value.
    """

    protocol: str
    address: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def client_options(self) -> dict[str, Any]:
        """Return the options of Trilogue's client of this protocol; InvalidOption."""
        if self.protocol == "tubemq":
            return self._tubemq_options()
        from trilogue.client.pulsar.client_config import convert_client_keys

        return convert_client_keys(
            {name.removeprefix(PULSAR): value for name, value in self.settings}
        )

    def _tubemq_options(self) -> dict[str, Any]:
        given = dict(self.settings)
        found: dict[str, Any] = {
            name: given[option] for option, name in TUBEMQ_NAMES.items() if option in given
        }
        return found | {"tls": parse_boolean(given, "tubemq.tls", default=False)}

    @property
    def group_prefix(self) -> str:
        """Return what the groups of a TubeMQ cluster begin with."""
        return dict(self.settings).get(GROUP_PREFIX, "trilogue-spark")


def parse_service_url(options: Mapping[str, str]) -> ServiceUrl | str | None:
    """Return the cluster of option `url`; of kafka:// only the servers. OptionError."""
    url = options.get("url", "").strip()
    given = [name for name in options if name.startswith((PULSAR, TUBEMQ))]
    if not url:
        if given:
            protocol = given[0].partition(".")[0]
            raise OptionError(f"option {given[0]!r} needs url={protocol}://…")
        return None
    scheme, _, address = url.partition("://")
    if scheme not in SCHEMES or not address:
        kinds = ", ".join(f"{each}://" for each in SCHEMES)
        raise OptionError(f"option 'url' is an address that begins with one of {kinds}")
    if "kafka.bootstrap.servers" in options:
        raise OptionError("give one of url and kafka.bootstrap.servers")
    protocol = "pulsar" if scheme in PULSAR_SCHEMES else scheme
    foreign = [name for name in given if not name.startswith(f"{protocol}.")]
    if protocol != "kafka":
        foreign += [name for name in options if name.startswith("kafka.")]
    if foreign:
        raise OptionError(f"option {foreign[0]!r} means nothing with url={scheme}://…")
    if protocol == "kafka":
        return address
    at = address if protocol == "tubemq" else url
    found = ServiceUrl(protocol, at, tuple(sorted((name, options[name]) for name in given)))
    try:
        _ = _check_client(found)
    except OptionError:
        raise
    except (ClientError, ValueError) as error:
        raise OptionError(f"options {protocol}.…: {error}") from None
    return found


def _check_client(url: ServiceUrl) -> object:
    """Return the checked options of the client; InvalidOption for what does not fit."""
    from trilogue.client.options import build_options

    if url.protocol == "tubemq":
        from trilogue.client.tubemq.client import parse_masters
        from trilogue.client.tubemq.options import ClientOptions as TubeOptions

        parse_masters(url.address)
        return build_options(TubeOptions, url.client_options())
    from trilogue.client.pulsar.options import ClientOptions

    return build_options(ClientOptions, url.client_options())
