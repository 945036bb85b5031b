"""How far each node of a cluster has applied meta's changes, as the nodes report it by NOTIFY.

Nothing of it is stored. A node that has reported nothing for a while is not waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from trilogue.meta.postgres import PostgresMeta
from trilogue.node.followed_versions import AppliedVersions

ALIVE_S: Final = 3.0
REPORT_S: Final = 1.0  # how often a node reports that it is alive


class ClusterVersions(AppliedVersions):
    """What the other nodes have reported, and what this one reports."""

    def __init__(self, meta: PostgresMeta, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(monotonic)
        self._meta = meta
        self._applied = 0
        self._reported_s = -REPORT_S

    def publish(self, version: int) -> None:
        """Report that this node has applied all changes up to a version."""
        now = self._monotonic()
        if version <= self._applied and now < self._reported_s + REPORT_S:
            return
        self._applied = max(self._applied, version)
        self._reported_s = now
        self._meta.report_applied(self._applied)

    def begin(self, version: int) -> None:
        """Report the version with which this node starts."""
        self.publish(version)

    def all_have(self, version: int) -> bool:
        """Whether every other node that is alive has applied a version."""
        oldest = self._monotonic() - ALIVE_S
        reports = self._meta.applied_by_others()
        return all(seen_s < oldest or applied >= version for applied, seen_s in reports)

    def close(self) -> None:
        """Do nothing: nothing is held."""
