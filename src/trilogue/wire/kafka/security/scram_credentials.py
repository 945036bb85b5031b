"""DescribeUserScramCredentials (50) v0, AlterUserScramCredentials (51) v0: KIP-554."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import blob, int8, int16, int32, message, since, string


@message()
class UserName:
    """A user."""

    name: string = since(0)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest:
    """Describe the credentials of these users, or of all."""

    users: list[UserName] | None = since(0, null=0)


@message()
class CredentialInfo:
    """A mechanism and its iterations; secrets are not included."""

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
    """Credentials by user."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    results: list[DescribeUserScramCredentialsResult] = since(0)


@message()
class ScramCredentialDeletion:
    """A credential to delete."""

    name: string = since(0)
    mechanism: int8 = since(0)


@message()
class ScramCredentialUpsertion:
    """A credential to set: salt and salted password."""

    name: string = since(0)
    mechanism: int8 = since(0)
    iterations: int32 = since(0)
    salt: blob = since(0)
    salted_password: blob = since(0)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest:
    """Set and delete credentials."""

    deletions: list[ScramCredentialDeletion] = since(0)
    upsertions: list[ScramCredentialUpsertion] = since(0)


@message()
class AlterUserScramCredentialsResult:
    """The result of one user."""

    user: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """Results by user."""

    throttle_time_ms: int32 = since(0)
    results: list[AlterUserScramCredentialsResult] = since(0)
