"""Consumers that register without having shown who they are, as Java's do.

The real Java client (1.13.0) means to sign when it registers, but a mistake of its own makes it
send an empty token instead; it signs only after a heartbeat was answered with `requireAuth`. So
that it can come in at all, such a registration is kept aside: the client is answered that nothing
is allocated yet, it is in no group, is told no token and nothing else, and its next heartbeat is
answered with `requireAuth`. The registration is looked at, with all its rules, when a heartbeat
brings the proof. Who brings none is forgotten after a while, and other mistakes are none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from trilogue.broker.errors import AuthenticationFailed, UnknownMember
from trilogue.gateway.tubemq.authentication import NO_PROOF, Role
from trilogue.gateway.tubemq.sessions import Sessions

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.call import Call
    from trilogue.gateway.tubemq.connection import TubeConnection

WAITING_MAX = 1_000
REQUEST_BYTES_MAX = 64 << 10  # of each


class Kept(NamedTuple):
    """A registration, and the connection that it and all that follows have to come by."""

    connection: TubeConnection
    request: Any


class Unproven:
    """Registrations that wait for a proof."""

    def __init__(self, timeout_s: float) -> None:
        self._waiting: Sessions[Kept] = Sessions(timeout_s, WAITING_MAX)

    def __len__(self) -> int:
        return len(self._waiting)

    def brings_none(self, call: Call) -> bool:
        """Whether a consumer wants to prove who it is, and brings nothing that would."""
        if Role.CONSUMER not in call.door.authentication.settings.authenticate:
            return False
        request = call.request
        if not request.HasField("authInfo"):
            return False
        proof = request.authInfo
        return not proof.HasField("authInfo") and not proof.authorizedToken

    def keep(self, call: Call) -> None:
        """Keep a registration aside; AuthenticationFailed where that cannot be."""
        now_s, client_id = call.door.loop.time(), call.request.clientId
        self._waiting.expire(now_s)
        there = self._waiting.find(client_id)
        holder = call.connection if there is None else there.connection
        is_others = holder is not call.connection and not holder.is_gone
        if is_others or call.size > REQUEST_BYTES_MAX:
            raise AuthenticationFailed(NO_PROOF)
        if not self._waiting.put(client_id, Kept(call.connection, call.request), now_s):
            raise AuthenticationFailed(NO_PROOF)

    def check_waits(self, call: Call) -> None:
        """UnknownMember for a heartbeat without a registration before it: it has to come again."""
        if self._find(call) is None:
            raise UnknownMember(f"Not found clientId {call.request.clientId} in holder!")

    def take(self, call: Call) -> Any:
        """The registration of a client that has proven who it is now, if one was kept."""
        kept = self._find(call)
        if kept is None:
            return None
        self._waiting.drop(call.request.clientId)
        return kept.request

    def _find(self, call: Call) -> Kept | None:
        self._waiting.expire(call.door.loop.time())
        kept = self._waiting.find(call.request.clientId)
        if kept is None or kept.connection is not call.connection:
            return None
        return kept if kept.request.groupName == call.request.groupName else None
