"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), v0: passwords (KIP-554)."""

from __future__ import annotations

from trilogue.wire.kafka.schema import blob, int8, int16, int32, message, since, string


@message()
class UserName:
    """A user."""

    name: string = since(0)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest:
    """Tell which kinds of passwords these users have, or all users."""

    users: list[UserName] | None = since(0, null=0)


@message()
class CredentialInfo:
    """One way for a user to log in; no secret is told."""

    mechanism: int8 = since(0)
    iterations: int32 = since(0)


@message()
class DescribeUserScramCredentialsResult:
    """One user."""

    user: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    credential_infos: list[CredentialInfo] = since(0)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    """By user."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    results: list[DescribeUserScramCredentialsResult] = since(0)


@message()
class ScramCredentialDeletion:
    """A password to be forgotten."""

    name: string = since(0)
    mechanism: int8 = since(0)


@message()
class ScramCredentialUpsertion:
    """A password to be set: what the client made of it."""

    name: string = since(0)
    mechanism: int8 = since(0)
    iterations: int32 = since(0)
    salt: blob = since(0)
    salted_password: blob = since(0)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest:
    """Set and forget passwords."""

    deletions: list[ScramCredentialDeletion] = since(0)
    upsertions: list[ScramCredentialUpsertion] = since(0)


@message()
class AlterUserScramCredentialsResult:
    """The outcome for one user."""

    user: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """Outcomes by user."""

    throttle_time_ms: int32 = since(0)
    results: list[AlterUserScramCredentialsResult] = since(0)
