"""The error of backups and restores, and the advice for what the disk or the store refuses."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trilogue.log.errors import LogError, ObjectDenied, ObjectMissing, StorageUnavailable

ADVICE: Final = {
    errno.ENOSPC: "free space there, or choose another place; what was copied is not copied again",
    errno.EDQUOT: "raise the quota, or choose another place; what was copied is not copied again",
    errno.EACCES: "run the command as the user of the server, or give it the right",
    errno.EPERM: "run the command as the user of the server, or give it the right",
    errno.ENOENT: "make the folder, or mount it",
    errno.EROFS: "the file system is mounted read-only",
}


class BackupError(Exception):
    """Why a backup or a restore did not come to its end, and what to do: one line."""


class CutMoved(Exception):
    """The server changed what was being copied; the next attempt has a newer cut."""


@contextmanager
def described(what: str) -> Iterator[None]:
    """Turn errors of the disk, the store and the log into `BackupError`, with advice."""
    try:
        yield
    except ObjectMissing as error:
        raise BackupError(f"{what}: {error}; is there a bucket of this name?") from error
    except ObjectDenied as error:
        raise BackupError(
            f"{what}: {error}; check the keys and their rights to put, get, list and delete"
        ) from error
    except StorageUnavailable as error:
        raise BackupError(
            f"{what}: {error}; run it again when the store answers: what was copied stays"
        ) from error
    except LogError as error:
        raise BackupError(f"{what}: {error}") from error
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        advice = ADVICE.get(error.errno or 0)
        raise BackupError(
            f"{what}: {error.strerror or error}{where}" + (f"; {advice}" if advice else "")
        ) from error
