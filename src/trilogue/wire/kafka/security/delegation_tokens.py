"""CreateDelegationToken (38), DescribeDelegationToken (41) v0-v3, Renew (39), Expire (40) v0-v2.

v2 flexible · v3 tokens for another owner, and their requesters (KIP-373).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import blob, int16, int32, int64, message, since, string


@message()
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: string = since(0)
    principal_name: string = since(0)


@message(key=38, versions=(0, 3), flexible=2)
class CreateDelegationTokenRequest:
    """Create a token of the client, or of another owner; a lifetime of -1 is the longest."""

    owner_principal_type: string | None = since(3, null=3)
    owner_principal_name: string | None = since(3, null=3)
    renewers: list[CreatableRenewers] = since(0)
    max_lifetime_ms: int64 = since(0)


@message(key=38, versions=(0, 3), flexible=2)
class CreateDelegationTokenResponse:
    """The token, with its HMAC."""

    error_code: int16 = since(0)
    principal_type: string = since(0)
    principal_name: string = since(0)
    token_requester_principal_type: string = since(3)
    token_requester_principal_name: string = since(3)
    issue_timestamp_ms: int64 = since(0)
    expiry_timestamp_ms: int64 = since(0)
    max_timestamp_ms: int64 = since(0)
    token_id: string = since(0)
    hmac: blob = since(0)
    throttle_time_ms: int32 = since(0)


@message(key=39, versions=(0, 2), flexible=2)
class RenewDelegationTokenRequest:
    """Move the expiry of a token to this time from now; a period of -1 is the longest."""

    hmac: blob = since(0)
    renew_period_ms: int64 = since(0)


@message(key=39, versions=(0, 2), flexible=2)
class RenewDelegationTokenResponse:
    """The new expiry."""

    error_code: int16 = since(0)
    expiry_timestamp_ms: int64 = since(0)
    throttle_time_ms: int32 = since(0)


@message(key=40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenRequest:
    """Let a token expire after this time; a negative period removes it now."""

    hmac: blob = since(0)
    expiry_time_period_ms: int64 = since(0)


@message(key=40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenResponse:
    """The new expiry."""

    error_code: int16 = since(0)
    expiry_timestamp_ms: int64 = since(0)
    throttle_time_ms: int32 = since(0)


@message()
class DescribeDelegationTokenOwner:
    """An owner whose tokens are requested."""

    principal_type: string = since(0)
    principal_name: string = since(0)


@message(key=41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenRequest:
    """Describe the tokens of these owners, or of all."""

    owners: list[DescribeDelegationTokenOwner] | None = since(0, null=0)


@message()
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: string = since(0)
    principal_name: string = since(0)


@message()
class DescribedDelegationToken:
    """A token, with its HMAC."""

    principal_type: string = since(0)
    principal_name: string = since(0)
    token_requester_principal_type: string = since(3)
    token_requester_principal_name: string = since(3)
    issue_timestamp: int64 = since(0)
    expiry_timestamp: int64 = since(0)
    max_timestamp: int64 = since(0)
    token_id: string = since(0)
    hmac: blob = since(0)
    renewers: list[DescribedDelegationTokenRenewer] = since(0)


@message(key=41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenResponse:
    """The tokens that the client may see."""

    error_code: int16 = since(0)
    tokens: list[DescribedDelegationToken] = since(0)
    throttle_time_ms: int32 = since(0)
