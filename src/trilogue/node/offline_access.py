"""Users and ACLs of a data directory whose server is stopped, or of a cluster in its database.

    async with open_offline_access(settings) as access:
        await access.administration.set_password("admin", b"...")

The directory is locked, so no server runs on it meanwhile. Meta gets a new epoch, as at each start.
A directory without data becomes an empty one: `serve --secure` makes its administrator so.

With `cluster.url` the users and ACLs are those in PostgreSQL, whose nodes may run or not: they obey
a change as if one of them had made it. `data` is then the directory of a node, which has the keys.

Each change is a line of the audit log, as changes at a server are: in the file of
`access.audit-log`, or in `audit.log` of the directory. Its principal is the user of the operating
system.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from trilogue.broker.access.acls import AclStore
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.users import Users
from trilogue.broker.metadata_change import MetadataChange
from trilogue.gateway.access_administration import AccessAdministration, ActRecorder
from trilogue.log.clock import wall_clock_ms
from trilogue.log.directory import DataDirectory
from trilogue.log.errors import AlreadyLocked, LogError, StorageFailed
from trilogue.log.files import OsFileSystem
from trilogue.log.formats import check_formats
from trilogue.meta.operations import Fence, Op, Precondition
from trilogue.meta.sqlite import SqliteMeta
from trilogue.node.access import make_administration, make_file_emit
from trilogue.node.cluster.folder import read_folder
from trilogue.node.errors import StartError
from trilogue.node.settings.table import Settings

AUDIT_LOG: Final = "audit.log"  # in the data directory, where the settings name no other
OS_USER: Final = "OS"  # the kind of the principal: no user of the cluster
PROTOCOL: Final = "offline"


class WriteOps(Protocol):
    """Makes operations durable."""

    def __call__(
        self, ops: Sequence[Op], preconditions: Sequence[Precondition] = ()
    ) -> Awaitable[object]:
        """Raise LogError, MetaError."""


class OfflineAccess(msgspec.Struct, frozen=True):
    """An open directory, or an open cluster."""

    administration: AccessAdministration
    write_ops: WriteOps


@asynccontextmanager
async def open_offline_access(settings: Settings) -> AsyncIterator[OfflineAccess]:
    """Open the users and ACLs of the directory of `data`; StartError if it is in use or damaged."""
    path = Path(settings.text("data"))
    with ExitStack() as stack:
        open_stored = _open_cluster if settings.text("cluster.url") else _open_directory
        try:
            stored, write_ops = open_stored(settings, path, stack)
        except AlreadyLocked as error:
            raise StartError(
                f"{path} is in use: stop its server, or name the server (--http) instead of --data"
            ) from error
        except LogError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(f"the data directory: {error.strerror}: {path}") from error

        async def write(change: MetadataChange[Any]) -> object:
            try:
                await write_ops(change.ops(), change.preconditions)
            except BaseException as error:
                raise change.abandon(error) from error
            return change.apply()

        users, acls = Users(stored), AclStore(stored)
        administration = make_administration(
            settings, users, acls, write, data=path, now_ms=wall_clock_ms
        )
        yield OfflineAccess(administration.recorded_by(_make_recorder(settings, path)), write_ops)


def _make_recorder(settings: Settings, data: Path) -> ActRecorder:
    """Return what writes the lines of changes; StartError if the file cannot be opened."""
    path = settings.text("access.audit-log") or str(data / AUDIT_LOG)
    audit = AuditLog(make_file_emit(path, "the audit log"), wall_clock_ms)
    client = Principal(OS_USER, str(os.getuid()))
    with suppress(KeyError):
        client = Principal(OS_USER, pwd.getpwuid(os.getuid()).pw_name)
    return partial(audit.done, client, PROTOCOL, "")


def _open_directory(
    _settings: Settings, path: Path, stack: ExitStack
) -> tuple[Mapping[str, str], WriteOps]:
    fs = OsFileSystem()
    directory = DataDirectory.open(fs, path)
    stack.callback(directory.close)
    check_formats(fs, directory)
    is_new = not (fs.listdir(directory.journal) or fs.listdir(directory.segments))
    meta = SqliteMeta.open(directory.meta, create=is_new)
    stack.callback(meta.close)
    fence = Fence(meta.state.node_id, meta.state.node_epoch)

    async def write_ops(ops: Sequence[Op], preconditions: Sequence[Precondition] = ()) -> object:
        return await meta.write(ops, preconditions, fence)

    return meta.state.settings, write_ops


def _open_cluster(
    settings: Settings, path: Path, stack: ExitStack
) -> tuple[Mapping[str, str], WriteOps]:
    from trilogue.meta.postgres_editor import PostgresEditor

    folder = read_folder(path)
    if folder is None:
        raise StorageFailed(
            f"{path} is no directory of a node of the cluster: --data names one, whose keys are "
            "needed"
        )
    editor = PostgresEditor.open(settings.text("cluster.url"), cluster_id=folder.cluster_id)
    stack.callback(editor.close)

    async def write_ops(ops: Sequence[Op], preconditions: Sequence[Precondition] = ()) -> object:
        return editor.write(ops, preconditions)

    return editor.state.settings, write_ops
