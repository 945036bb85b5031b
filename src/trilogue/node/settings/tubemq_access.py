"""Settings of access control at the TubeMQ listeners."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

ROLES = ("off", "producers", "consumers", "both")

TUBEMQ_ACCESS: tuple[Setting, ...] = (
    Setting(
        "tubemq.authenticate",
        Kind.TEXT,
        "off",
        "Which TubeMQ clients have to authenticate, with a signature made with their password, "
        "where `access.authenticate` is off; with it both have to.",
        choices=ROLES,
    ),
    Setting(
        "tubemq.authorize",
        Kind.TEXT,
        "off",
        "Which TubeMQ clients may do only what Pulsar's permissions grant to their user: produce "
        "to, consume from a topic or the topics of a namespace. They have to be authenticated. "
        "With `access.authorize` the ACLs decide instead.",
        choices=ROLES,
    ),
    Setting(
        "tubemq.users",
        Kind.PATH,
        "",
        "Deprecated, the old name of `access.users-file`.",
    ),
    Setting(
        "tubemq.check-visit-tokens",
        Kind.SWITCH,
        "false",
        "Refuse TubeMQ clients at the broker that do not send one of the last visit tokens that "
        "the master issued to this client. Always so with `access.authenticate`.",
    ),
    Setting(
        "tubemq.web-token",
        Kind.TEXT,
        "",
        "The `confModAuthToken` that changes over TubeMQ's web API need. Without it one is "
        "created at the first start; it is in `tubemq-web-token` in the data directory, which "
        "only the "
        "owner may read.",
        secret=True,
    ),
)
