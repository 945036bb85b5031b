"""What real brokers ask a master (methods 7 to 9): refused. Our nodes do not register this way."""

from __future__ import annotations

from trilogue.gateway.tubemq.call import Call
from trilogue.wire.tubemq.errors import TubeCode

REFUSAL = "brokers cannot join: the nodes of this cluster do not register with a master"


def refuse(call: Call) -> None:
    """Say so."""
    call.refuse(TubeCode.FORBIDDEN, REFUSAL)
