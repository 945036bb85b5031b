"""The settings of a cluster: `ack` and `cluster.*`."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

CLUSTER_NODES_MAX = 1_000
ACK_LOCAL, ACK_SHARED = "local", "shared"

CLUSTER: tuple[Setting, ...] = (
    Setting(
        "cluster.slots",
        Kind.INTEGER,
        "16",
        "Into how many parts partitions and groups are divided when a directory is first served by "
        "several nodes; fixed from then on, and at least the number of nodes.",
        minimum=1,
        maximum=4_096,
    ),
    Setting(
        "cluster.url",
        Kind.TEXT,
        "",
        "The database of a cluster on several machines, `postgresql://USER@HOST:PORT/DATABASE`: "
        "its nodes have their metadata there, and each its journal and segments in a data "
        "directory of its own. Needs the extra `postgres`; a password may be in PGPASSWORD or a "
        "file named by PGPASSFILE.",
        secret=True,
    ),
    Setting(
        "cluster.node",
        Kind.INTEGER,
        "1",
        "The number of this node in the cluster of `cluster.url`, 1 to `cluster.size`.",
        minimum=1,
        maximum=CLUSTER_NODES_MAX,
    ),
    Setting(
        "cluster.size",
        Kind.INTEGER,
        "1",
        "Over how many nodes a new cluster's partitions and groups are spread; read when the "
        "cluster is created, by the first node that starts.",
        minimum=1,
        maximum=CLUSTER_NODES_MAX,
    ),
    Setting(
        "cluster.listen",
        Kind.ADDRESS,
        "",
        "Where the other nodes of `cluster.url` connect, for transactions over several nodes; by "
        "default a free port at the host of the node's first listener. Connections are encrypted, "
        "and both ends prove that they know a key of the cluster.",
    ),
    Setting(
        "cluster.advertise",
        Kind.ADDRESS,
        "",
        "The address that other nodes are given for `cluster.listen`, if it is not its own; by "
        "default with the host that clients of the first listener are given.",
    ),
    Setting(
        "ack",
        Kind.TEXT,
        ACK_LOCAL,
        "When a message is acknowledged: `local`, when it is on the node's disk; `shared`, when "
        "PostgreSQL has committed it, so that another machine can serve it when this one is lost. "
        "`shared` needs `cluster.url` and `objects.url`; it is fixed when a node is first started.",
        choices=(ACK_LOCAL, ACK_SHARED),
    ),
    Setting(
        "cluster.lease",
        Kind.DURATION,
        "3s",
        "With `ack=shared`: how long a node may be silent before another process may serve as this "
        "node, and how long it answers clients without PostgreSQL. The same at all nodes.",
        minimum=500,
        maximum=600_000,
    ),
    Setting(
        "cluster.spread-after",
        Kind.DURATION,
        "0s",
        "With `ack=shared`: how long after the end of a node's lease others take its slots over, "
        "if it has not been started again and no standby serves as it; -1 for never. Where there "
        "are standbys: 3s, or others are as fast as they.",
        minimum=-1,
        maximum=86_400_000,
    ),
    Setting(
        "cluster.standby",
        Kind.SWITCH,
        "false",
        "With `ack=shared`: wait until the lease of any node is over, and serve as that node.",
    ),
)
