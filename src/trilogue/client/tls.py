"""The TLS contexts of all clients: certificates are always verified."""

from __future__ import annotations

import ssl

from trilogue.client.errors import InvalidOption


def make_client_context(
    authorities: str = "",
    certificate: str = "",
    key: str = "",
    key_password: str = "",
    *,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """Return a context from PEM files; without authorities those of the machine. InvalidOption."""
    try:
        context = ssl.create_default_context(cafile=authorities or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = check_hostname
        if certificate:
            context.load_cert_chain(certificate, key or None, key_password or None)
    except OSError as error:  # SSLError is one
        files = ", ".join(each for each in (authorities, certificate, key) if each)
        raise InvalidOption(f"TLS: {files}: {error.strerror or error}") from error
    return context
