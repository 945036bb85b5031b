"""Rows of the table of settings that say who may do what at the TubeMQ doors."""

from __future__ import annotations

from trilogue.node.setting import Setting
from trilogue.node.values import Kind

ROLES = ("off", "producers", "consumers", "both")

TUBEMQ_ACCESS: tuple[Setting, ...] = (
    Setting(
        "tubemq.authenticate",
        Kind.TEXT,
        "off",
        "Which TubeMQ clients have to prove who they are, with a signature that their password "
        "makes; needs tubemq.users.",
        choices=ROLES,
    ),
    Setting(
        "tubemq.authorize",
        Kind.TEXT,
        "off",
        "Which TubeMQ clients may do only what was granted to their user: produce to, consume from "
        "a topic or the topics of a namespace. They have to be authenticated.",
        choices=ROLES,
    ),
    Setting(
        "tubemq.users",
        Kind.PATH,
        "",
        "A file of TubeMQ's users, a line `user:password` each, which nobody else may read. It is "
        "read again when it changes.",
    ),
    Setting(
        "tubemq.check-visit-tokens",
        Kind.SWITCH,
        "false",
        "Refuse TubeMQ clients at the broker that do not bring one of the last tokens the master "
        "gave to whoever registered.",
    ),
    Setting(
        "tubemq.web-token",
        Kind.TEXT,
        "",
        "The `confModAuthToken` that changes over TubeMQ's web API need. Without it one is made at "
        "the first start; it stands in `tubemq-web-token` in the data directory, which only the "
        "owner may read.",
        secret=True,
    ),
)
