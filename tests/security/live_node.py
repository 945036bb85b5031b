"""A node in a thread of this process, for clients that block: tests change its users and ACLs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from cryptography.fernet import Fernet

from trilogue.broker.access.acls import ANY_HOST, Acl, Pattern
from trilogue.broker.access.authorizer import Operation, Principal, ResourceKind
from trilogue.broker.access.passwords import encrypt_password
from trilogue.broker.access.users import User
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import parse_kafka
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import ALL_LISTENERS, LISTENERS

LIMIT_S = 60.0
T = TypeVar("T")


class LiveNode:
    """Use it as a context; listeners that `listeners` does not name are off."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object], listeners: tuple[str, ...] = LISTENERS
    ) -> None:
        self.key = Fernet.generate_key()
        self.audit_log = folder / "audit.log"
        (folder / "key").write_bytes(self.key)
        addresses = {name: "127.0.0.1:0" if name in listeners else "off" for name in ALL_LISTENERS}
        given = {
            "data": folder / "data",
            "access.key-file": folder / "key",
            "access.audit-log": self.audit_log,
            **{f"listen.{name}": address for name, address in addresses.items()},
            **settings,
        }
        assignments = [f"{key}={value}" for key, value in given.items()]
        self.node = Node(load_settings(environment={}, assignments=assignments))
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(LIMIT_S)
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(self, *_problem: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(LIMIT_S)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self.node.start()
        except BaseException as problem:
            self._problem = problem
            raise
        finally:
            self._ready.set()
        await self._end.wait()
        await self.node.close()

    @property
    def doors(self) -> dict[str, str]:
        """The addresses of the listeners."""
        return self.node.gateways.addresses

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the node."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def write(self, change: MetadataChange[T]) -> T:
        """Make a change durable and apply it."""
        return self.run(self.node.metadata_writer.write(change))

    def make_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic of the default namespace."""

        async def create() -> None:
            cluster = self.node.storage.broker.cluster
            new = cluster.check_create(parse_kafka(name), partition_count=partitions, settings={})
            await self.node.metadata_writer.write(cluster.plan_create(new))

        self.run(create())
        return name

    def put_user(self, name: str, password: str | None) -> None:
        """Create or change a user; None: one without a password for signatures."""
        signing = "" if password is None else encrypt_password(password.encode(), self.key)
        users = self.node.storage.broker.users
        self.write(users.plan_put(User(name, self.node.now_ms(), signing=signing)))

    def delete_user(self, name: str) -> None:
        users = self.node.storage.broker.users
        self.write(users.plan_delete(name, self.node.now_ms()))

    def allow(self, user: str, operation: Operation, kind: ResourceKind, name: str) -> None:
        acls = self.node.storage.broker.acls
        self.write(acls.plan_create([make_acl(user, operation, kind, name)]))

    def withdraw(self, user: str, operation: Operation, kind: ResourceKind, name: str) -> None:
        acls = self.node.storage.broker.acls
        self.write(acls.plan_delete([make_acl(user, operation, kind, name)]))


def make_acl(user: str, operation: Operation, kind: ResourceKind, name: str) -> Acl:
    """Return the permission of a user on one resource by its canonical name."""
    principal = Principal("User", user)
    return Acl(kind, Pattern.LITERAL, name, principal, ANY_HOST, operation, True)
