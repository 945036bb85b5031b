"""Settings of the TubeMQ gateway, and of access control at its listeners."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

ROLES = ("off", "producers", "consumers", "both")

TUBEMQ: tuple[Setting, ...] = (
    Setting(
        "tubemq.hold",
        Kind.DURATION,
        "3s",
        "How long a TubeMQ consumer's request at the end of the data waits for a message, at most; "
        "0 = answered at once, as a real broker does, after which the client sleeps.",
        minimum=0,
        maximum=8_000,
    ),
    Setting(
        "tubemq.standby",
        Kind.SWITCH,
        "false",
        "Be a standby: the master answers every TubeMQ client that another master is active.",
    ),
    Setting(
        "tubemq.producer-timeout",
        Kind.DURATION,
        "45s",
        "How long the master keeps a TubeMQ producer that sends no heartbeat.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    Setting(
        "tubemq.consumer-timeout",
        Kind.DURATION,
        "30s",
        "How long a TubeMQ consumer that sends no heartbeat keeps its partitions at the master.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    Setting(
        "tubemq.reader-timeout",
        Kind.DURATION,
        "30s",
        "How long the broker reserves a partition for a consumer of a TubeMQ group that sends "
        "nothing.",
        minimum=1_000,
        maximum=86_400_000,
    ),
)

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
