"""Objects in S3-compatible storage or in a directory, by way of obstore (the extra `s3`).

    s3://bucket/prefix      keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a credentials file,
                            or the machine's role
    file:///path            a directory that exists: another disk, or a mounted one

Each call is one request with a time limit; objects.py retries. obstore is imported at the first
use. Its errors become those of the port, without the text of the server's response: responses of
some servers repeat keys and signatures.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from trilogue.log.errors import ObjectDenied, ObjectExists, ObjectMissing, StorageUnavailable
from trilogue.log.files import FileSystem, OsFileSystem
from trilogue.log.objects.cache import CACHE_BYTES, ObjectCache
from trilogue.log.objects.objects import ListedObject, Objects, ObjectsEnvironment

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Config, S3Credential, S3Store
    from typing_extensions import Buffer

CONNECT_S: Final = 2.0
REQUEST_S: Final = 5.0  # any request but a put, which has twice as long and more for its bytes
PUT_BYTES_A_SECOND: Final = 1 << 20  # a slower connection than this cannot upload
REASON_MAX: Final = 300
CREDENTIALS_FRESH_S: Final = 300.0  # afterwards the file is read again: keys are rotated
CREDENTIALS_BYTES_MAX: Final = 64 << 10
UPLOADING: Final = ".uploading"

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS = re.compile(r"^[^<\n]* status code: (\d{3})")
_KINDS = {"401": ObjectDenied, "403": ObjectDenied, "404": ObjectMissing}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


class StoreOptionsError(ValueError):
    """A URL or an option that cannot work; the message names the option and the reason."""


class StoreOptions(msgspec.Struct, frozen=True):
    """How to reach a store. Sent to the helper process; holds paths of secrets, never a secret."""

    url: str
    endpoint: str = ""  # of S3-compatible storage that is not Amazon's
    region: str = ""
    credentials_file: str = ""

    def check(self) -> None:
        """Raise `StoreOptionsError` for errors that can be found without a request to the store."""
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


def open_store(
    options: StoreOptions, *, request_s: float = REQUEST_S
) -> S3ObjectStore | DirectoryStore:
    """Create the store of a URL, without a request to it."""
    options.check()
    if urlsplit(options.url).scheme == "file":
        return DirectoryStore(Path(unquote(urlsplit(options.url).path)), OsFileSystem())
    return S3ObjectStore(options, request_s=request_s)


class Reach(msgspec.Struct, frozen=True):
    """How to reach one cluster's objects; a plain value that can be sent to the helper process."""

    options: StoreOptions
    cluster_id: bytes
    node_id: int | None = None  # of this node, if each one has a folder

    def open(self, around: ObjectsEnvironment) -> Objects:
        """Create the `Objects` of the cluster, without a request to the store."""
        return Objects(open_store(self.options), self.cluster_id, around, self.node_id)

    def cache(self, budget: int = CACHE_BYTES) -> ObjectCache:
        """Create the cache that reads segments, with the system's clock and random numbers."""
        around = ObjectsEnvironment(time.monotonic, time.sleep, Random())  # noqa: S311
        return ObjectCache(self.open(around), time.monotonic, budget)


class S3ObjectStore:
    """A bucket, or a prefix in one."""

    def __init__(self, options: StoreOptions, *, request_s: float = REQUEST_S) -> None:
        self._options = options
        self._request_s = request_s
        self._client: S3Store | None = None

    def put(self, key: str, data: Buffer) -> None:
        """Put with If-None-Match in a single request, so that the store prevents overwriting."""
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
        """Request the object's length."""
        import obstore

        with _mapped(f"look for {key}"):
            return obstore.head(self._reader(), key)["size"]

    def delete(self, key: str) -> None:
        """Delete one object."""
        import obstore

        with _mapped(f"delete {key}"), suppress(FileNotFoundError):
            obstore.delete(self._reader(), key)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """List page by page."""
        import obstore

        with _mapped(f"list {prefix}"):
            for page in obstore.list(self._reader(), prefix, chunk_size=1_000):
                yield from (ListedObject(each["path"], each["size"]) for each in page)

    def _reader(self) -> S3Store:
        if self._client is None:  # two threads may create one each: one of them is dropped
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
    """A directory. An object is synced before it gets its final name."""

    def __init__(self, root: Path, files: FileSystem) -> None:
        self._root = root
        self._files = files
        self._client: LocalStore | None = None

    def put(self, key: str, data: Buffer) -> None:
        """Write a temporary file, sync it, and link it to its name unless that exists."""
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
        """Sync the folder of the name, and the folders above that may be new."""
        while path != self._root:
            path = path.parent
            self._files.sync_directory(path)

    def read(self, key: str, position: int, size: int) -> Buffer:
        """Read a range."""
        import obstore

        with _mapped(f"read {key}"):
            return obstore.get_range(self._open(), key, start=position, length=size)

    def size(self, key: str) -> int:
        """Return the file's length."""
        import obstore

        with _mapped(f"look for {key}"):
            return obstore.head(self._open(), key)["size"]

    def delete(self, key: str) -> None:
        """Delete one file."""
        import obstore

        with _mapped(f"delete {key}"), suppress(FileNotFoundError):
            obstore.delete(self._open(), key)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Walk the directory."""
        import obstore

        with _mapped(f"list {prefix}"):
            for page in obstore.list(self._open(), prefix, chunk_size=1_000):
                yield from (ListedObject(each["path"], each["size"]) for each in page)

    def _open(self) -> LocalStore:
        if not self._files.exists(self._root):  # it may be mounted later, or again
            raise StorageUnavailable(f"there is no directory {self._root}")
        if self._client is None:
            from obstore.store import LocalStore

            with _mapped("open"):
                self._client = LocalStore(self._root)
        return self._client


class _FileCredentials:
    """Keys from a file like ~/.aws/credentials, section `default`, read again periodically."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> S3Credential:
        """Read the file; refuse one that users other than its owner can read."""
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
            kind = type(error).__name__  # the text of some errors contains lines of the file
            raise ObjectDenied(f"no keys in {self._path} ({kind})") from None


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    """Turn errors of obstore and the disk into the errors of the port."""
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
        status = _STATUS.search(str(error))  # listings raise no special class
        kind = _KINDS.get(status[1] if status else "", StorageUnavailable)
        raise kind(f"{what}: {_reason(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's: must not end us
            raise
        raise StorageUnavailable(f"{what}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """Return the error's first line, without the body of the response; of that only the code."""
    text = str(error)
    code = _CODE.search(text)
    first = text.split("\n", 1)[0].split("<", 1)[0].strip(" :")[:REASON_MAX]
    return f"{first} ({code[1]})" if code else first


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
