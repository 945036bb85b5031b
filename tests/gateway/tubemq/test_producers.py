"""producerRegisterP2M, producerHeartbeatP2M, producerCloseClientP2M (seed 002, wire facts 6)."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import FULL, Rig

ME = {"clientId": "192.0.2.2-1-1-1-1.13.0", "hostName": "192.0.2.2"}


@on_loop
async def test_a_producer_that_registers_is_told_of_the_broker():
    async with Rig() as rig:
        said = await rig.master().ask("producerRegisterP2M", brokerCheckSum=-1, **ME)

        assert (said.success, said.errCode, said.errMsg) == (True, 200, "OK!")
        assert list(said.brokerInfos) == [FULL]
        assert said.brokerCheckSum >= 0
        assert said.authorizedInfo.visitAuthorizedToken >= 0
        assert said.appdConfig.maxMsgSize == 1 << 20
