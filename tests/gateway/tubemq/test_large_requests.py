"""The limits of what one request of a consumer may name: counted before it is parsed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import FULL, Rig

MANY = 20_001
SERVER = {"clientId": "g_a", "groupName": "g", "hostName": "h", "topicList": ["demo"]}
CLIENT = {**SERVER, "sourceCount": 0, "nodeId": 0}


def report(*parts: str) -> dict[str, Any]:
    response = {"brokerConfigId": 1, "topicMetaInfoId": 1, "reportSubInfo": True}
    return {"subRepInfo": {**response, "partSubInfo": parts}}


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("consumerRegisterC2M", {**SERVER, "topicCondition": ["demo#a"] * 1_025}),
        ("consumerRegisterC2M", {**SERVER, "subscribeInfo": [f"a@g#{FULL}#demo:0"] * MANY}),
        ("consumerRegisterC2MV2", {**CLIENT, **report("demo#" + "1:0," * MANY)}),
        ("consumerRegisterC2MV2", {**CLIENT, **report(*["nope#1:0"] * MANY)}),
    ],
)
@on_loop
async def test_the_same_thing_many_times_is_refused_too(method: str, fields: dict[str, Any]):
    async with Rig() as rig:
        rig.topic("demo", 1)

        response = await rig.master().request(method, **fields)

        assert response.errCode == 400
        assert "a consumer may have" in response.errMsg
