"""A running node with a topic of secrets, and users without any right on it."""

from __future__ import annotations

from pathlib import Path

import jwt

from tests.gateway.kafka.rig import batch
from tests.security.bypass import SECRET
from tests.security.live_node import LiveNode
from trilogue.broker.access.users import make_user
from trilogue.broker.names import parse_kafka

PASSWORD = "a password of her own"
TOKEN_KEY = "k" * 40
SECURED = {"access.authenticate": "true", "access.authorize": "true"}


class SecretNode(LiveNode):
    """Its topic is `orders`; it requires logins, and grants nothing."""

    def prepare(self, *users: str) -> None:
        """Make the topic, and users with `PASSWORD`."""
        self.make_topic("orders")
        self.run(self._append())
        for name in users:
            user = make_user(name, PASSWORD.encode(), self.node.now_ms(), key=self.key)
            self.write(self.node.storage.broker.users.plan_put(user))

    async def _append(self) -> None:
        topic = self.node.storage.broker.cluster.find_topic(parse_kafka("orders"))
        topic.partitions[0].append(memoryview(batch(SECRET)), now_ms=self.node.now_ms())

    def state(self) -> object:
        """Return all that a request could have changed."""

        async def read() -> object:
            broker, state = self.node.storage.broker, self.node.storage.meta.state
            ends = [each.log.end_offset for topic in broker.cluster for each in topic.partitions]
            return dict(state.topics), dict(state.settings), ends

        return self.run(read())


def with_tokens(folder: Path) -> dict[str, object]:
    """Return the settings of a node that requires logins, and accepts tokens too."""
    key = folder / "token.key"
    key.write_text(TOKEN_KEY)
    key.chmod(0o600)
    return {**SECURED, "access.token-key": key}


def make_token(user: str, **claims: object) -> str:
    """Return a token of a user."""
    return jwt.encode({"sub": user, **claims}, TOKEN_KEY, algorithm="HS256")
