"""Rows of the table of settings that are about groups of readers."""

from __future__ import annotations

from trilogue.node.setting import Setting
from trilogue.node.values import Kind

GROUPS: tuple[Setting, ...] = (
    Setting(
        "groups.initial-delay",
        Kind.DURATION,
        "50ms",
        "How long the first rebalance of an empty group waits for more members; each one that "
        "comes starts the wait again, and signs that more will come prolong it a little.",
        minimum=0,
        maximum=3_000,
    ),
    Setting(
        "groups.session-timeout-min",
        Kind.DURATION,
        "6s",
        "The shortest session timeout a group member may ask for.",
        minimum=100,
    ),
    Setting(
        "groups.session-timeout-max",
        Kind.DURATION,
        "30min",
        "The longest session timeout a group member may ask for.",
        minimum=100,
    ),
    Setting(
        "groups.max-size",
        Kind.INTEGER,
        "1000",
        "How many members one group may have.",
        minimum=1,
        maximum=100_000,
    ),
    Setting(
        "groups.offset-retention",
        Kind.DURATION,
        "7d",
        "How long a Kafka group's positions are kept after its last member has gone (or, without "
        "members, after they were committed). Cursors of other protocols never expire.",
        minimum=1,
    ),
    Setting(
        "groups.offset-check",
        Kind.DURATION,
        "10min",
        "How often positions whose time is over are looked for.",
        minimum=10,
    ),
    Setting(
        "groups.consumer-session-timeout",
        Kind.DURATION,
        "45s",
        "How long a member of a consumer group (KIP-848) may be silent.",
        minimum=100,
    ),
    Setting(
        "groups.consumer-heartbeat",
        Kind.DURATION,
        "5s",
        "How often members of consumer groups are told to show life: also how soon they hear that "
        "their share has changed. After a change they are told to come sooner for a while.",
        minimum=10,
    ),
    Setting(
        "groups.consumer-max-size",
        Kind.INTEGER,
        "1000",
        "How many members one consumer group may have.",
        minimum=1,
        maximum=100_000,
    ),
    Setting(
        "groups.consumer-max-total",
        Kind.INTEGER,
        "5000000",
        "How many names of topics, partitions and (20 each) members all consumer groups may have "
        "together, as each group counts them: who would join beyond that hears "
        "GROUP_MAX_SIZE_REACHED. A hundred bytes each is much.",
        minimum=100,
        maximum=1_000_000_000,
    ),
    Setting(
        "groups.consumer-migration",
        Kind.TEXT,
        "bidirectional",
        "Whether a group with members changes its kind: `upgrade` when a member of a consumer "
        "group joins a classic one, `downgrade` when only classic members are left.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
)
