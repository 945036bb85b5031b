"""Delegation tokens (KIP-48): credentials that a client makes for programs that act for it.

    token id    16 random bytes in base64, without padding; the name in a login
    HMAC        HMAC-SHA-512 of the id with the secret of the node; in base64, the password
    owner       the principal of a login with the token
    requester   who made it: the owner, or a principal that may make tokens for the owner (KIP-373)
    renewers    who may renew and expire it besides the owner

A token expires unless it is renewed in time, and cannot be renewed beyond its longest life. A
token that was issued before its owner's or requester's tokens were revoked, or the user deleted, is
gone.

Meta has one setting for each token, `access/delegation-tokens/<id>` = JSON, without its HMAC: a
copy of the metadata is no credential, and another secret makes every token's HMAC another.
"""

from __future__ import annotations

import base64
import hmac
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.scram import ScramVerifier, make_verifier
from trilogue.broker.errors import ConcurrentChange, InUse, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange
from trilogue.log.errors import CorruptLog
from trilogue.meta.operations import DeleteSetting, Op, PutSetting, SettingIs

PREFIX = "access/delegation-tokens/"
DAY_MS = 86_400_000
TOKENS_MAX = 10_000
TOKENS_PER_OWNER_MAX = 1_000
TOKEN_BYTES_MAX = 16 << 10  # of the JSON: names of the owner, the requester and the renewers
REMOVED_AT_ONCE = 1_000
DIGEST = "sha512"


class DelegationToken(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A token; times are in ms of the epoch, `end_ms` is the end that no renewal moves."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    end_ms: int

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Return whether a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    @property
    def principals(self) -> set[Principal]:
        """The owner, the requester and the renewers, who see the token."""
        return {self.owner, self.requester, *self.renewers}

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the token has expired."""
        return min(self.expires_ms, self.end_ms) <= now_ms


class DelegationTokenLimits(msgspec.Struct, frozen=True):
    """How long tokens live, and how many there may be."""

    lifetime_ms: int = 7 * DAY_MS  # Kafka's delegation.token.max.lifetime.ms
    renewal_ms: int = DAY_MS  # Kafka's delegation.token.expiry.time.ms
    tokens_max: int = TOKENS_MAX


class DelegationTokens:
    """All tokens of a cluster.

    `tokens_from_ms` returns the time before which tokens of a name were revoked. `listeners` get
    the id of each token that was removed, or expires earlier than before.
    """

    def __init__(
        self, settings: Mapping[str, str], tokens_from_ms: Callable[[str], int] = lambda _name: 0
    ) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.limits = DelegationTokenLimits()
        self._tokens_from_ms = tokens_from_ms
        self._secret: Callable[[], bytes] | None = None
        self._tokens: dict[str, DelegationToken] = {}
        self._texts: dict[str, str] = {}
        self._by_hmac: dict[bytes, str] | None = None  # made at the first lookup
        self._verifiers: dict[tuple[str, str], ScramVerifier] = {}  # by id and mechanism
        for key, text in settings.items():
            if key.startswith(PREFIX):
                token = _decode(text)
                self._tokens[token.token_id], self._texts[token.token_id] = token, text

    def enable(self, secret: Callable[[], bytes], limits: DelegationTokenLimits) -> None:
        """Allow tokens; `secret` returns the secret of the node, and may raise StorageFailed."""
        self._secret, self.limits = secret, limits

    @property
    def is_enabled(self) -> bool:
        """Whether tokens can be made and used."""
        return self._secret is not None

    def __iter__(self) -> Iterator[DelegationToken]:
        """Iterate over the tokens by the time of their issue, without revoked ones."""
        found = sorted(self._tokens.values(), key=lambda token: (token.issued_ms, token.token_id))
        return (token for token in found if not self._is_revoked(token))

    def __len__(self) -> int:
        """Return how many tokens are stored, expired and revoked ones too."""
        return len(self._tokens)

    # -- lookups

    def find(self, token_id: str) -> DelegationToken | None:
        """Return a token, which may have expired, or None for an unknown or revoked one."""
        token = self._tokens.get(token_id)
        return None if token is None or self._is_revoked(token) else token

    def find_by_hmac(self, digest: bytes) -> DelegationToken | None:
        """Return the token with an HMAC, which may have expired, or None."""
        if not self._tokens:
            return None
        if self._by_hmac is None:
            self._by_hmac = {self.hmac_of(token_id): token_id for token_id in self._tokens}
        return self.find(self._by_hmac.get(digest, ""))

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token id; raises StorageFailed without a secret."""
        assert self._secret is not None, "delegation tokens are enabled"
        return hmac.digest(self._secret(), token_id.encode(), DIGEST)

    def find_verifier(self, token_id: str, mechanism: str, now_ms: int) -> ScramVerifier | None:
        """Return what checks a SCRAM login with a token, None if it is unknown or expired.

        The first login with a token takes milliseconds of CPU.
        """
        token = self.find(token_id) if self.is_enabled else None
        if token is None or token.is_expired(now_ms):
            return None
        verifier = self._verifiers.get((token_id, mechanism))
        if verifier is None:
            password = base64.b64encode(self.hmac_of(token_id))
            verifier = self._verifiers[token_id, mechanism] = make_verifier(mechanism, password)
        return verifier

    # -- changes

    def make_token(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Collection[Principal],
        *,
        lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        """Return a new token, which is not stored; a `lifetime_ms` of 0 or less is the longest."""
        longest_ms = self.limits.lifetime_ms
        end_ms = now_ms + (min(lifetime_ms, longest_ms) if lifetime_ms > 0 else longest_ms)
        return DelegationToken(
            _make_id(),
            owner,
            requester,
            tuple(dict.fromkeys(renewers)),
            now_ms,
            min(end_ms, now_ms + self.limits.renewal_ms),
            end_ms,
        )

    def renew(self, token: DelegationToken, period_ms: int, now_ms: int) -> DelegationToken:
        """Return the token with its expiry after a renewal; 0 or less is the longest period."""
        longest_ms = self.limits.renewal_ms
        until_ms = now_ms + (min(period_ms, longest_ms) if period_ms > 0 else longest_ms)
        return msgspec.structs.replace(token, expires_ms=min(token.end_ms, until_ms))

    def expire(self, token: DelegationToken, period_ms: int, now_ms: int) -> DelegationToken:
        """Return the token with an expiry after this time, earlier or later than before."""
        return msgspec.structs.replace(token, expires_ms=min(token.end_ms, now_ms + period_ms))

    def plan_create(self, token: DelegationToken) -> MetadataChange[None]:
        """Return the change that stores a new token; raises InvalidRequest, InUse at a limit.

        At the limit expired tokens give way.
        """
        for principal in (token.owner, token.requester, *token.renewers):
            if not principal.name or not principal.name.isprintable():
                raise InvalidRequest("the name of a principal has no control characters")
        now_ms = token.issued_ms
        removed: list[DelegationToken] = []
        if len(self._tokens) >= self.limits.tokens_max:
            removed = self.find_removable(now_ms)
        if len(self._tokens) - len(removed) >= self.limits.tokens_max:
            raise InUse(f"there may be {self.limits.tokens_max} delegation tokens")
        owned = sum(
            each.owner == token.owner and not each.is_expired(now_ms)
            for each in self._tokens.values()
        )
        if owned >= TOKENS_PER_OWNER_MAX:
            raise InUse(f"an owner may have {TOKENS_PER_OWNER_MAX} delegation tokens")
        return self._plan(token, removed)

    def plan_replace(self, token: DelegationToken) -> MetadataChange[None]:
        """Return the change that stores another expiry of a token."""
        return self._plan(token, ())

    def plan_remove(self, tokens: Iterable[DelegationToken]) -> MetadataChange[None]:
        """Return the change that removes tokens; one that is gone is no error."""
        return self._plan(None, tokens)

    def find_removable(self, now_ms: int, most: int = REMOVED_AT_ONCE) -> list[DelegationToken]:
        """Return expired and revoked tokens, at most that many."""
        found = (
            token
            for token in self._tokens.values()
            if token.is_expired(now_ms) or self._is_revoked(token)
        )
        return [token for token, _ in zip(found, range(most), strict=False)]

    # -- parts

    def _plan(
        self, token: DelegationToken | None, removed: Iterable[DelegationToken]
    ) -> MetadataChange[None]:
        gone = [each.token_id for each in removed if each.token_id in self._tokens]
        ops: list[Op] = [DeleteSetting(PREFIX + token_id) for token_id in gone]
        preconditions = []
        text = ""
        if token is not None:
            text = msgspec.json.encode(token).decode()
            if len(text.encode()) > TOKEN_BYTES_MAX:
                raise InvalidRequest(
                    f"a delegation token has at most {TOKEN_BYTES_MAX} bytes, with the names of "
                    "its renewers"
                )
            key = PREFIX + token.token_id
            ops.append(PutSetting(key, text))
            preconditions.append(SettingIs(key, self._texts.get(token.token_id)))

        def apply() -> None:
            if token is not None:
                self._put(token, text)
            for token_id in gone:
                self._remove(token_id)

        return MetadataChange(
            lambda: ops,
            preconditions,
            apply,
            on_conflict=ConcurrentChange("the delegation token was changed meanwhile"),
        )

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that another node wrote; None: it was deleted."""
        if text is None:
            self._remove(key.removeprefix(PREFIX))
        else:
            self._put(_decode(text), text)

    def _put(self, token: DelegationToken, text: str) -> None:
        old = self._tokens.get(token.token_id)
        self._tokens[token.token_id], self._texts[token.token_id] = token, text
        if self._by_hmac is not None:
            self._by_hmac[self.hmac_of(token.token_id)] = token.token_id
        if old is not None and token.expires_ms < old.expires_ms:
            self._notify(token.token_id)

    def _remove(self, token_id: str) -> None:
        if self._tokens.pop(token_id, None) is None:
            return
        del self._texts[token_id]
        if self._by_hmac is not None:
            self._by_hmac.pop(self.hmac_of(token_id), None)
        for key in [key for key in self._verifiers if key[0] == token_id]:
            del self._verifiers[key]
        self._notify(token_id)

    def _notify(self, token_id: str) -> None:
        for listener in self.listeners:
            listener(token_id)

    def _is_revoked(self, token: DelegationToken) -> bool:
        return any(
            token.issued_ms <= self._tokens_from_ms(principal.name)
            for principal in (token.owner, token.requester)
        )


def _make_id() -> str:
    """Return a random id as Kafka's Uuid is written, which never begins with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _decode(text: str) -> DelegationToken:
    try:
        return msgspec.json.decode(text, type=DelegationToken)
    except msgspec.MsgspecError as error:
        raise CorruptLog(f"a delegation token that cannot be read: {error}") from error
