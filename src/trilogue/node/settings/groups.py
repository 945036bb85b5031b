"""Settings of consumer groups."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

GROUPS: tuple[Setting, ...] = (
    Setting(
        "groups.initial-delay",
        Kind.DURATION,
        "50ms",
        "How long the first assignment of an empty group, or share group, waits for more members; "
        "each one that joins restarts the wait, and signs that more will join extend it a little.",
        minimum=0,
        maximum=3_000,
    ),
    Setting(
        "groups.session-timeout-min",
        Kind.DURATION,
        "6s",
        "The shortest session timeout a group member may request.",
        minimum=100,
    ),
    Setting(
        "groups.session-timeout-max",
        Kind.DURATION,
        "30min",
        "The longest session timeout a group member may request.",
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
        "members, after they were committed). Positions of other protocols never expire.",
        minimum=1,
    ),
    Setting(
        "groups.offset-check",
        Kind.DURATION,
        "10min",
        "How often the server looks for expired positions.",
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
        "The heartbeat interval that members of consumer groups are given: also how soon they get "
        "a new assignment. After a change it is shorter for a while.",
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
        "together, as each group counts them: a member that would exceed it gets "
        "GROUP_MAX_SIZE_REACHED. Each takes at most about a hundred bytes.",
        minimum=100,
        maximum=1_000_000_000,
    ),
    Setting(
        "groups.share-record-lock",
        Kind.DURATION,
        "30s",
        "How long a record that a member of a share group acquired is locked for it; the group's "
        "own `share.record.lock.duration.ms` overrides it.",
        minimum=1_000,
        maximum=60_000,
    ),
    Setting(
        "groups.share-record-lock-min",
        Kind.DURATION,
        "15s",
        "The shortest lock that a share group may set; at most `groups.share-record-lock`.",
        minimum=1_000,
        maximum=60_000,
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
