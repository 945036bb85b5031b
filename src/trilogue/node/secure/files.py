"""The files of a secured data directory, all 0600 in directories of 0700.

secure.toml              settings that every start on this directory obeys
access.token-key         the key that signs tokens
tls/ca.pem, ca.key       the private authority
tls/server.pem, .key     the certificate of the listeners, with its chain
clients/                 configurations of clients with the administrator's credentials

and, in the directory of a node of a cluster:

cluster.secret           the key of what PostgreSQL has of the following, the same at all nodes
access.key               the key that encrypts passwords for TubeMQ's signatures
delegation-tokens.key    the key that Kafka's delegation tokens are made with
tls/node.pem, node.key   the certificate by which the node logs in at `listen.internal`
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from trilogue.node.settings.sources import SECURE_FILE

SECURED_MARK = "access/secured"  # the setting in meta that remembers it


class SecureFiles(msgspec.Struct, frozen=True):
    """The paths in one data directory."""

    data: Path

    @property
    def settings(self) -> Path:
        """The file of settings; it exists once the directory is secured."""
        return self.data / SECURE_FILE

    @property
    def token_key(self) -> Path:
        """The key of tokens."""
        return self.data / "access.token-key"

    @property
    def signing_key(self) -> Path:
        """The key that encrypts passwords for TubeMQ's signatures."""
        return self.data / "access.key"

    @property
    def delegation_key(self) -> Path:
        """The key that delegation tokens are made with."""
        return self.data / "delegation-tokens.key"

    @property
    def cluster_secret(self) -> Path:
        """The key of the secrets that the nodes of a cluster share."""
        return self.data / "cluster.secret"

    @property
    def audit_log(self) -> Path:
        """The audit log."""
        return self.data / "audit.log"

    @property
    def tls(self) -> Path:
        """The directory of certificates."""
        return self.data / "tls"

    @property
    def clients(self) -> Path:
        """The directory of client configurations."""
        return self.data / "clients"

    @property
    def truststore(self) -> Path:
        """The private authority for Java clients that read no PEM."""
        return self.clients / "truststore.p12"

    @property
    def password(self) -> Path:
        """The administrator's password, which the client configurations have."""
        return self.clients / "admin.password"

    @property
    def is_secured(self) -> bool:
        """Whether the directory was secured."""
        return self.settings.exists()


def node_name(node_id: int) -> str:
    """Return the name in the certificate of a node of a cluster."""
    return f"node-{node_id}"


def create_private(path: Path, content: bytes) -> bytes:
    """Create a file that only its owner can read, if there is none; return its content.

    Of several processes that create it at once, one wins, and all return what it wrote. Raises
    OSError.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    write_private(draft, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return path.read_bytes()
    finally:
        draft.unlink()
    _sync_folder(path.parent)
    return content


def write_private(path: Path, content: bytes) -> None:
    """Replace a file by one with this content that only its owner can read; raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
