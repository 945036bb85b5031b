"""What one may choose: values and their defaults, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from trilogue.client.errors import ClientError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client talks; `docs/how-to/use-the-kafka-client.md` says what each is for."""

    client_id: str = "trilogue"
    request_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.request_timeout_s <= 0:
            raise ClientError(f"times must be positive: {self}")
