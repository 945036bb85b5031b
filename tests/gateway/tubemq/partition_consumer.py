"""A scripted consumer at a broker: registers partitions, gets, confirms."""

from __future__ import annotations

from typing import Any

from tests.gateway.tubemq.rig import Peer

GROUP = "readers"
ME, OTHER = "readers_192.0.2.2-1-1-1-Pull-1.13.0", "readers_192.0.2.3-1-1-1-Pull-1.13.0"
FULL = "1:broker.example:8123#{topic}:{partition}"


class PartitionConsumer:
    """One client of a group, over a connection that it may share."""

    def __init__(
        self, peer: Peer, client_id: str = ME, group: str = GROUP, topic: str = "demo"
    ) -> None:
        self.peer = peer
        self.client_id = client_id
        self.group = group
        self.topic = topic

    def _names(self, partition: int) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "groupName": self.group,
            "topicName": self.topic,
            "partitionId": partition,
        }

    def send_register(self, partition: int = 0, **more: Any) -> int:
        """Send without waiting; return the serial number."""
        fields = {"opType": 31, "readStatus": 0, **self._names(partition), **more}
        return self.peer.send_request("consumerRegisterC2B", **fields)

    async def register(self, partition: int = 0, **more: Any) -> Any:
        return await self.peer.wait(self.send_register(partition, **more))

    def send_unregister(self, partition: int = 0, read_status: int = 0) -> int:
        fields = {"opType": 32, "readStatus": read_status, **self._names(partition)}
        return self.peer.send_request("consumerRegisterC2B", **fields)

    async def unregister(self, partition: int = 0, read_status: int = 0) -> Any:
        return await self.peer.wait(self.send_unregister(partition, read_status))

    def send_get(self, partition: int = 0, *, consumed: bool = False, **more: Any) -> int:
        """Send without waiting; return the serial number."""
        fields = {
            **self._names(partition),
            "lastPackConsumed": consumed,
            "manualCommitOffset": False,
            "escFlowCtrl": False,
            **more,
        }
        return self.peer.send_request("getMessagesC2B", **fields)

    async def get(self, partition: int = 0, *, consumed: bool = False, **more: Any) -> Any:
        return await self.peer.wait(self.send_get(partition, consumed=consumed, **more))

    def send_commit(self, partition: int = 0, *, consumed: bool = True) -> int:
        fields = {**self._names(partition), "lastPackConsumed": consumed}
        return self.peer.send_request("consumerCommitC2B", **fields)

    async def commit(self, partition: int = 0, *, consumed: bool = True) -> Any:
        return await self.peer.wait(self.send_commit(partition, consumed=consumed))

    async def heartbeat(self, *partitions: int) -> Any:
        places = [FULL.format(topic=self.topic, partition=each) for each in partitions]
        return await self.peer.request(
            "consumerHeartbeatC2B",
            clientId=self.client_id,
            groupName=self.group,
            readStatus=0,
            partitionInfo=places,
        )


def bodies(response: Any) -> list[bytes]:
    """Return the data of the delivered messages."""
    assert response.success, (response.errCode, response.errMsg)
    return [each.payLoadData for each in response.messages]
