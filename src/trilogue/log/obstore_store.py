"""Objects in S3-compatible storage or in a directory, by way of obstore (the extra `s3`).

    s3://bucket/prefix      keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a credentials file,
                            or what the machine's role gives
    file:///path            a directory that exists: another disk, or what is mounted there

Each call is one request with a time limit; who retries is objects.py. obstore is loaded with the
first use, and errors of any kind become those of the port, without what a server put into them:
answers of some servers repeat keys and signatures.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from trilogue.log.errors import ObjectDenied, ObjectExists, ObjectMissing, StorageUnavailable
from trilogue.log.files import FileSystem, OsFileSystem
from trilogue.log.object_cache import CACHE_BYTES, ObjectCache
from trilogue.log.objects import Listed, Objects, Surroundings

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Config, S3Credential, S3Store
    from typing_extensions import Buffer

CONNECT_S: Final = 2.0
REQUEST_S: Final = 5.0  # any request but a put, which has twice as long and more for its bytes
PUT_BYTES_A_SECOND: Final = 1 << 20  # a slower line than this cannot upload
REASON_MAX: Final = 300
CREDENTIALS_FRESH_S: Final = 300.0  # then the file is read again: keys are rotated
CREDENTIALS_BYTES_MAX: Final = 64 << 10
UPLOADING: Final = ".uploading"

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS = re.compile(r"^[^<\n]* status code: (\d{3})")
_KINDS = {"401": ObjectDenied, "403": ObjectDenied, "404": ObjectMissing}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


class StoreOptionsError(ValueError):
    """A URL or an option that cannot work; the message says which and why."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach a store. Travels to the helper process; holds no secret, only where one lies."""

    url: str
    endpoint: str = ""  # of S3-compatible storage that is not Amazon's
    region: str = ""
    credentials_file: str = ""

    def check(self) -> None:
        """Refuse what can be seen to be wrong without asking the store."""
        parts = urlsplit(self.url)
        match parts.scheme:
            case "s3" if _BUCKET.fullmatch(parts.netloc) and not parts.query + parts.fragment:
                pass
            case "file" if not parts.netloc and parts.path.startswith("/"):
                if self.endpoint or self.region or self.credentials_file:
                    raise StoreOptionsError("endpoint, region and keys are for s3:// only")
            case _:
                raise StoreOptionsError(
                    f"{_without_secrets(self.url)} is neither s3://BUCKET/PREFIX nor file:///PATH"
                )
        endpoint = urlsplit(self.endpoint)
        if self.endpoint and (endpoint.scheme not in {"http", "https"} or not endpoint.hostname):
            raise StoreOptionsError(
                "the endpoint must be http://HOST[:PORT] or https://HOST[:PORT]"
            )
        if "@" in endpoint.netloc or "@" in parts.netloc:
            raise StoreOptionsError("keys do not belong into a URL")
        if importlib.util.find_spec("obstore") is None:
            raise StoreOptionsError(
                "object storage needs a package that is not here: pip install 'trilogue[s3]'"
            )


def open_store(options: StoreOptions) -> S3ObjectStore | DirectoryStore:
    """Make the store of a URL; nothing is asked of it yet."""
    options.check()
    if urlsplit(options.url).scheme == "file":
        return DirectoryStore(Path(unquote(urlsplit(options.url).path)), OsFileSystem())
    return S3ObjectStore(options)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a process needs to reach one cluster's objects; it can be sent to the helper."""

    options: StoreOptions
    cluster_id: bytes

    def open(self, around: Surroundings) -> Objects:
        """Make what reads and writes them; nothing is asked of the store yet."""
        return Objects(open_store(self.options), self.cluster_id, around)

    def cache(self, budget: int = CACHE_BYTES) -> ObjectCache:
        """Make what segments are read through, with the clock and chance of the system."""
        around = Surroundings(time.monotonic, time.sleep, Random())  # noqa: S311
        return ObjectCache(self.open(around), time.monotonic, budget)


class S3ObjectStore:
    """A bucket, or what lies below a prefix in one."""

    def __init__(self, options: StoreOptions, *, request_s: float = REQUEST_S) -> None:
        self._options = options
        self._request_s = request_s
        self._client: S3Store | None = None

    def put(self, key: str, data: Buffer) -> None:
        """Put with If-None-Match, as one request: so the store itself keeps it from overwriting."""
        import obstore

        view = memoryview(data).cast("B")
        client = self._open(2 * self._request_s + len(view) / PUT_BYTES_A_SECOND)
        with _mapped(f"put {key}"):
            obstore.put(client, key, view, mode="create", use_multipart=False)

    def read(self, key: str, position: int, size: int) -> Buffer:
        """Get a range."""
        import obstore

        with _mapped(f"read {key}"):
            return obstore.get_range(self._reader(), key, start=position, length=size)

    def size(self, key: str) -> int:
        """Ask for the object's length."""
        import obstore

        with _mapped(f"look for {key}"):
            return obstore.head(self._reader(), key)["size"]

    def delete(self, key: str) -> None:
        """Delete one object."""
        import obstore

        with _mapped(f"delete {key}"), suppress(FileNotFoundError):
            obstore.delete(self._reader(), key)

    def list(self, prefix: str) -> Iterator[Listed]:
        """List page by page."""
        import obstore

        with _mapped(f"list {prefix}"):
            for page in obstore.list(self._reader(), prefix, chunk_size=1_000):
                yield from (Listed(each["path"], each["size"]) for each in page)

    def _reader(self) -> S3Store:
        if self._client is None:  # two threads may make two of them: one is dropped
            self._client = self._open(self._request_s)
        return self._client

    def _open(self, limit_s: float) -> S3Store:
        from obstore.store import S3Store

        options, parts = self._options, urlsplit(self._options.url)
        config: S3Config = {"disable_bulk_delete": True}
        if options.endpoint:
            config["endpoint"] = options.endpoint
            config["virtual_hosted_style_request"] = False
        if options.region:
            config["region"] = options.region
        provider = _FileCredentials(Path(options.credentials_file))
        with _mapped("open"):
            return S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                config=config,
                client_options={
                    "allow_http": options.endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                    "timeout": timedelta(seconds=limit_s),
                },
                retry_config={"max_retries": 0},
                credential_provider=provider if options.credentials_file else None,
            )


class DirectoryStore:
    """A directory: what was put is synced, and has its name only when it is whole."""

    def __init__(self, root: Path, files: FileSystem) -> None:
        self._root = root
        self._files = files
        self._client: LocalStore | None = None

    def put(self, key: str, data: Buffer) -> None:
        """Write beside, sync, and give it its name if nothing has it."""
        import obstore

        client, temporary = self._open(), key + UPLOADING
        with _mapped(f"put {key}"):
            obstore.put(client, temporary, data, use_multipart=False)
            file = self._files.open(self._root / temporary)
            try:
                file.sync()
            finally:
                file.close()
            try:
                obstore.rename(client, temporary, key, overwrite=False)
            except obstore.exceptions.AlreadyExistsError:
                obstore.delete(client, temporary)
                raise
            self._sync_folders(self._root / key)

    def _sync_folders(self, path: Path) -> None:
        """Make the name durable, and those of folders that may be new."""
        while path != self._root:
            path = path.parent
            self._files.sync_directory(path)

    def read(self, key: str, position: int, size: int) -> Buffer:
        """Read a range."""
        import obstore

        with _mapped(f"read {key}"):
            return obstore.get_range(self._open(), key, start=position, length=size)

    def size(self, key: str) -> int:
        """Look at the file."""
        import obstore

        with _mapped(f"look for {key}"):
            return obstore.head(self._open(), key)["size"]

    def delete(self, key: str) -> None:
        """Delete one file."""
        import obstore

        with _mapped(f"delete {key}"), suppress(FileNotFoundError):
            obstore.delete(self._open(), key)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Walk the directory."""
        import obstore

        with _mapped(f"list {prefix}"):
            for page in obstore.list(self._open(), prefix, chunk_size=1_000):
                yield from (Listed(each["path"], each["size"]) for each in page)

    def _open(self) -> LocalStore:
        if not self._files.exists(self._root):  # it may be mounted later, or again
            raise StorageUnavailable(f"there is no directory {self._root}")
        if self._client is None:
            from obstore.store import LocalStore

            with _mapped("open"):
                self._client = LocalStore(self._root)
        return self._client


class _FileCredentials:
    """Keys from a file like ~/.aws/credentials, section `default`, read again now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> S3Credential:
        """Read the file; nobody but its owner may be able to."""
        from configparser import ConfigParser, Error

        try:
            if self._path.stat().st_mode & 0o077:
                raise ObjectDenied(f"{self._path} can be read by others: chmod 600")
            with self._path.open() as file:
                parser = ConfigParser(interpolation=None)
                parser.read_string(file.read(CREDENTIALS_BYTES_MAX))
            section = parser["default"]
            return {
                "access_key_id": section["aws_access_key_id"],
                "secret_access_key": section["aws_secret_access_key"],
                "token": section.get("aws_session_token"),
                "expires_at": datetime.now(UTC) + timedelta(seconds=CREDENTIALS_FRESH_S),
            }
        except (OSError, KeyError, Error, UnicodeDecodeError) as error:
            kind = type(error).__name__  # the text of some of them holds lines of the file
            raise ObjectDenied(f"no keys in {self._path} ({kind})") from None


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    """Turn what obstore and the disk raise into the errors of the port."""
    from obstore import exceptions as them

    try:
        yield
    except StorageUnavailable:
        raise
    except FileNotFoundError as error:
        raise ObjectMissing(f"{what}: {_reason(error)}") from None
    except them.AlreadyExistsError as error:
        raise ObjectExists(f"{what}: {_reason(error)}") from None
    except (them.PermissionDeniedError, them.UnauthenticatedError, PermissionError) as error:
        raise ObjectDenied(f"{what}: {_reason(error)}") from None
    except (them.BaseError, OSError) as error:
        status = _STATUS.search(str(error))  # a listing has no errors of its own for these
        kind = _KINDS.get(status[1] if status else "", StorageUnavailable)
        raise kind(f"{what}: {_reason(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's: no Exception, and no end of ours
            raise
        raise StorageUnavailable(f"{what}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """The first line, without the body of an answer; of that only the code."""
    text = str(error)
    code = _CODE.search(text)
    first = text.split("\n", 1)[0].split("<", 1)[0].strip(" :")[:REASON_MAX]
    return f"{first} ({code[1]})" if code else first


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
