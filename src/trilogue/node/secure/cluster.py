"""`serve --cluster URL --secure`: the nodes of a cluster share an authority, keys and users.

The first node makes them, and puts them into the metadata of the cluster, encrypted with
`cluster.secret`, in the change that creates the administrator. Whoever reads the database, or a
copy of it, has users' verifiers but no key; the file is brought to each other node by hand. What
such a node finds in the metadata it writes into its own directory, and makes the certificate of its
listeners itself. From then on its directory is a secured one, as of a node alone.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from trilogue.broker.access.users import Users, make_user
from trilogue.log.clock import wall_clock_ms
from trilogue.log.errors import LogError
from trilogue.meta.errors import PreconditionFailed
from trilogue.meta.operations import PutSetting, SettingIs
from trilogue.meta.postgres_editor import PostgresEditor
from trilogue.node.cluster.folder import read_folder
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.secure.certificates import make_authority
from trilogue.node.secure.files import (
    SECURED_MARK,
    SecureFiles,
    create_private,
    node_name,
    write_private,
)
from trilogue.node.secure.setup import (
    ADMINISTRATOR,
    make_password,
    make_token_key,
    report_secured,
    settings_text,
)
from trilogue.node.settings.table import Settings

SECRETS_KEY: Final = "access/cluster-secrets"  # the setting in meta that has them, encrypted
DELEGATION_KEY_BYTES: Final = 32


def secure_cluster(settings: Settings, owners: Sequence[int]) -> Iterator[str]:
    """Secure the directory of a node, and its cluster if it is not yet; StartError.

    Yields lines for the user. `owners` are the nodes of the slots, if the cluster is created.
    """
    files = SecureFiles(Path(settings.text("data")))
    if files.is_secured:
        return
    try:
        files.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = read_folder(files.data)
        cluster_id = None if folder is None else folder.cluster_id
        url = settings.text("cluster.url")
        with PostgresEditor.open(url, cluster_id=cluster_id, owners=owners) as editor:
            is_first = SECRETS_KEY not in editor.state.settings and _begin(editor, files)
            if not is_first:
                _join(files, editor.state.settings)
        text = settings_text(files, _cluster_settings(files, owners))
        write_private(files.settings, text.encode())
    except OSError as error:
        raise StartError(f"--secure: {error.strerror}: {error.filename}") from error
    except LogError as error:
        raise StartError(f"--secure: {error}") from error
    yield from report_secured(files)
    if is_first:
        yield f"copy {files.cluster_secret} into the data directories of the other nodes"


def _cluster_settings(files: SecureFiles, owners: Sequence[int]) -> dict[str, str]:
    """Return how nodes trust each other at `listen.internal`, which is off until it is named."""
    names = (f"User:CN={node_name(node_id)}" for node_id in sorted(set(owners)))
    return {
        "tls.client-ca": f"{files.tls.name}/ca.pem",
        "cluster.principals": ";".join(names),
    }


def _secret_files(files: SecureFiles) -> Mapping[str, Path]:
    """Return the files that are the same at all nodes, by their names in the metadata."""
    return {
        "ca.pem": files.tls / "ca.pem",
        "ca.key": files.tls / "ca.key",
        "token-key": files.token_key,
        "signing-key": files.signing_key,
        "delegation-key": files.delegation_key,
        "password": files.password,
    }


def _begin(editor: PostgresEditor, files: SecureFiles) -> bool:
    """Secure the cluster; return whether this node did, and no other one at the same time."""
    if Users(editor.state.settings).find(ADMINISTRATOR) is not None:
        raise StartError(
            f"--secure: the cluster has a user {ADMINISTRATOR}: delete it "
            f"(`trilogue users delete {ADMINISTRATOR}`)"
        )
    key = create_private(files.cluster_secret, Fernet.generate_key() + b"\n").strip()
    _make_missing(files)
    content = {name: path.read_text() for name, path in _secret_files(files).items()}
    sealed = _cipher(files, key).encrypt(msgspec.json.encode(content)).decode()
    users = Users(editor.state.settings)
    password = content["password"].strip().encode()
    administrator = users.plan_put(
        make_user(
            ADMINISTRATOR, password, wall_clock_ms(), key=content["signing-key"].strip().encode()
        )
    )
    change = [
        *administrator.ops(),
        PutSetting(SECRETS_KEY, sealed),
        PutSetting(SECURED_MARK, "1"),
    ]
    try:
        editor.write(change, [*administrator.preconditions, SettingIs(SECRETS_KEY, None)])
    except PreconditionFailed:
        editor.refresh()
        return False
    return True


def _make_missing(files: SecureFiles) -> None:
    """Make the secrets that an interrupted start has not made yet."""
    files.clients.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = files.tls / "ca.pem"
    if not authority.exists():
        make_authority(authority, authority.with_suffix(".key"), dt.datetime.now(dt.UTC))
    create_private(files.token_key, make_token_key())
    create_private(files.signing_key, Fernet.generate_key() + b"\n")
    secret = secrets.token_hex(DELEGATION_KEY_BYTES).encode()
    create_private(files.delegation_key, secret + b"\n")
    create_private(files.password, make_password())


def _join(files: SecureFiles, stored: Mapping[str, str]) -> None:
    """Write the secrets of a secured cluster into the directory of this node."""
    if SECRETS_KEY not in stored:
        raise StartError("--secure: the cluster has another user admin by now")
    if not files.cluster_secret.exists():
        raise StartError(
            f"--secure: the cluster is secured: copy cluster.secret, from the data directory of "
            f"the node that was secured first, to {files.cluster_secret}"
        )
    cipher = _cipher(files, files.cluster_secret.read_bytes().strip())
    try:
        content = msgspec.json.decode(
            cipher.decrypt(stored[SECRETS_KEY].encode()), type=dict[str, str]
        )
    except InvalidToken as error:
        raise StartError(
            f"--secure: {files.cluster_secret} is not that of the cluster: copy it from the data "
            "directory of a node that is secured"
        ) from error
    files.clients.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, path in _secret_files(files).items():
        write_private(path, content[name].encode())


def _cipher(files: SecureFiles, key: bytes) -> Fernet:
    try:
        return Fernet(key)
    except ValueError as error:
        raise StartError(f"{files.cluster_secret} holds no key", WRONG_SETTING) from error
