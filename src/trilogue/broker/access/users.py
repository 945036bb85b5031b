"""The users of a cluster and the verifiers of their passwords, stored in meta.

A user has, made from one password:

    password   a scrypt hash, for PLAIN, Pulsar's basic and HTTP's basic
    scram      a verifier for each SCRAM mechanism; one made by Kafka's tools is the user's only
               secret, and then verifies PLAIN and basic too
    signing    the password itself, encrypted with the key file, for TubeMQ's signatures: their
               HMAC is made with it, so no hash of it would do

Meta has one setting for each user, `access/users/alice` = JSON. A deleted user's row stays for the
time of its deletion: tokens that were issued before it are refused. Whoever keeps sessions calls
`listeners.append(callback)`: the callback gets the name of each user that was changed or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from trilogue.broker.access.authorizer import USER, Principal
from trilogue.broker.access.passwords import (
    DEFAULT_SHAPE,
    PasswordHash,
    check_new_password,
    encrypt_password,
    hash_password,
)
from trilogue.broker.access.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramShape,
    ScramShapes,
    ScramVerifier,
    make_verifier,
)
from trilogue.broker.errors import InUse, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange, plan_setting
from trilogue.log.errors import CorruptLog

PREFIX = "access/users/"
USERS_MAX = 100_000
NAME_BYTES_MAX = 256


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A user; `tokens_from_ms` is the time before which tokens of the user were revoked."""

    name: str
    changed_ms: int
    scram: dict[str, ScramVerifier] = {}
    password: PasswordHash | None = None
    signing: str = ""
    tokens_from_ms: int = 0
    is_deleted: bool = False

    @property
    def principal(self) -> Principal:
        """The identity of the user, whatever the method of the login."""
        return Principal(USER, self.name)


class Users:
    """All users of a cluster."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self._texts: dict[str, str] = {}
        self._users: dict[str, User] = {}
        self._shapes = {mechanism: ScramShapes() for mechanism in HASHES}
        self._first_shapes = ScramShapes()  # of the verifier that checks a password
        for key, text in settings.items():
            if key.startswith(PREFIX):
                self._load(key, text)

    def __iter__(self) -> Iterator[User]:
        """Iterate over the users by name, without deleted ones."""
        return iter([self._users[name] for name in sorted(self._users) if self.find(name)])

    def __len__(self) -> int:
        return sum(not user.is_deleted for user in self._users.values())

    def find(self, name: str) -> User | None:
        """Return a user, or None for an unknown or deleted one."""
        user = self._users.get(name)
        return None if user is None or user.is_deleted else user

    def tokens_from_ms(self, name: str) -> int:
        """Return the time before which tokens of this user, known or deleted, were revoked."""
        user = self._users.get(name)
        return 0 if user is None else user.tokens_from_ms

    def choose_shape(self, mechanism: str, digest: bytes) -> ScramShape:
        """Return the shape of an unknown user's verifier, by a keyed digest of its name."""
        return self._shapes[mechanism].choose(digest) or ScramShape(mechanism)

    def choose_first_shape(self, digest: bytes) -> ScramShape:
        """Return that of the verifier which a password of an unknown user is checked with."""
        return self._first_shapes.choose(digest) or DEFAULT_SHAPE

    def plan_put(self, user: User) -> MetadataChange[None]:
        """Return the change that creates or replaces a user; raises InvalidRequest, InUse."""
        check_name(user.name)
        for mechanism, verifier in user.scram.items():
            if mechanism not in HASHES:
                raise InvalidRequest(f"there is no SCRAM mechanism {mechanism}")
            if not ITERATIONS_MIN <= verifier.iterations <= ITERATIONS_MAX:
                raise InvalidRequest(
                    f"a SCRAM verifier has {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations"
                )
        if user.name not in self._users and len(self._users) >= USERS_MAX:
            raise InUse(f"there may be {USERS_MAX} users")
        return self._plan(user)

    def plan_delete(self, name: str, now_ms: int) -> MetadataChange[None]:
        """Return the change that deletes a user and revokes its tokens; raises InvalidRequest."""
        if self.find(name) is None:
            raise InvalidRequest(f"there is no user {name}")
        return self._plan(User(name, now_ms, tokens_from_ms=now_ms, is_deleted=True))

    def plan_revoke_tokens(self, name: str, now_ms: int) -> MetadataChange[None]:
        """Return the change that revokes tokens issued to a name before now."""
        check_name(name)
        user = self._users.get(name) or User(name, now_ms, is_deleted=True)
        return self._plan(msgspec.structs.replace(user, tokens_from_ms=now_ms))

    def _plan(self, user: User) -> MetadataChange[None]:
        key = PREFIX + user.name
        text = encode_user(user)
        before = self._texts.get(key)
        return plan_setting(key, before, text, self.apply_setting, subject="the user")

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that this node or another one wrote; None: it was deleted."""
        name = key.removeprefix(PREFIX)
        if text is None:
            self._texts.pop(key, None)
            self._count_shapes(self._users.pop(name, None), -1)
        else:
            self._load(key, text)
        for listener in self.listeners:
            listener(name)

    def _load(self, key: str, text: str) -> None:
        self._texts[key] = text
        user = decode_user(text)
        self._count_shapes(self._users.get(user.name), -1)
        self._users[user.name] = user
        self._count_shapes(user, 1)

    def _count_shapes(self, user: User | None, change: int) -> None:
        """Note what a user shows of its verifiers."""
        verifiers = {} if user is None else user.scram
        shapes = [
            ScramShape(mechanism, each.iterations, len(each.salt))
            for mechanism, each in verifiers.items()
        ]
        for shape in shapes:
            self._shapes[shape.mechanism].count(shape, change)
        if shapes:
            self._first_shapes.count(shapes[0], change)


def make_user(
    name: str, password: bytes, now_ms: int, *, key: bytes, tokens_from_ms: int = 0
) -> User:
    """Return a user with all secrets that are made from a password; takes 60 ms of CPU.

    `key` is the content of the key file. Raises InvalidRequest.
    """
    check_name(name)
    check_new_password(password)
    return User(
        name,
        now_ms,
        {mechanism: make_verifier(mechanism, password) for mechanism in HASHES},
        hash_password(password),
        encrypt_password(password, key),
        tokens_from_ms,
    )


def check_name(name: str) -> None:
    """Refuse a name that no user can have: InvalidRequest."""
    if not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX or not name.isprintable():
        raise InvalidRequest(
            f"the name of a user has 1 to {NAME_BYTES_MAX} bytes and no control characters"
        )


def encode_user(user: User) -> str:
    """Return the text of a user's setting."""
    return msgspec.json.encode(user).decode()


def decode_user(text: str) -> User:
    """Return the user of a setting; CorruptLog."""
    try:
        return msgspec.json.decode(text, type=User)
    except msgspec.MsgspecError as error:
        raise CorruptLog(f"a user that cannot be read: {error}") from error
