"""How a group without classic members refuses their requests: a share or a streams group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from trilogue.broker.errors import InconsistentProtocol, UnknownMember
from trilogue.broker.groups.classic.members import JoinRequest, JoinResult, SyncResult
from trilogue.broker.promise import Promise


class NoClassicMembers:
    """The part of a group that refuses classic members."""

    name: str
    kind: ClassVar[str]  # in messages

    def join(self, _: JoinRequest) -> Promise[JoinResult]:
        """Refuse a classic member."""
        raise InconsistentProtocol(f"group {self.name} is a {self.kind}")

    def sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[SyncResult]:
        """Refuse a classic member."""
        del generation, instance_id, assignments, protocol_type, protocol
        raise self.unknown_classic(member_id)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Refuse a classic member."""
        del generation, instance_id
        raise self.unknown_classic(member_id)

    def unknown_classic(self, member_id: str) -> UnknownMember:
        """Return the refusal of a classic member."""
        return UnknownMember(f"group {self.name} is a {self.kind}, without member {member_id!r}")
