"""How two nodes of a cluster prove to each other that they know its key.

```
 connects ── TLS, any certificate ─────────────────────────────────────────► listens
          ── nonce, 32 bytes ──────────────────────────────────────────────►
          ◄── nonce, 32 bytes; HMAC-SHA256(key, LISTENS nonces certificate) ──
          ── HMAC-SHA256(key, CONNECTS nonces certificate) ────────────────►
```

The certificate is made at each start, without an authority. Both proofs contain it as each end has
seen it, so that a proof is worth nothing to a third party with a certificate of its own.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import hmac
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NONCE: Final = 32
PROOF: Final = hashlib.sha256().digest_size
LISTENS, CONNECTS = b"listens ", b"connects"
LIFETIME: Final = dt.timedelta(days=36_500)  # of a certificate that ends with its process


class WrongPeer(OSError):
    """The other end does not know the key of the cluster."""


def make_server_context() -> tuple[ssl.SSLContext, bytes]:
    """Return a context with a new certificate, and the certificate (DER). OSError."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Trilogue node")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + LIFETIME)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    with tempfile.TemporaryDirectory() as folder:  # ssl reads files only
        path = Path(folder) / "node.pem"
        path.touch(mode=0o600)
        path.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(path)
    return context, certificate.public_bytes(serialization.Encoding.DER)


def make_client_context() -> ssl.SSLContext:
    """Return a context that takes any certificate: `prove_client` checks who has it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def prove_server(
    key: bytes, certificate: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Do the part of the end that listens. WrongPeer, IncompleteReadError, OSError."""
    theirs, ours = await reader.readexactly(NONCE), os.urandom(NONCE)
    nonces = theirs + ours
    writer.write(ours + make_proof(key, LISTENS, nonces, certificate))
    proof = await reader.readexactly(PROOF)
    if not hmac.compare_digest(proof, make_proof(key, CONNECTS, nonces, certificate)):
        raise WrongPeer("a peer at cluster.listen does not know the key of the cluster")


async def prove_client(
    key: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Do the part of the end that connects. WrongPeer, IncompleteReadError, OSError."""
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    ours = os.urandom(NONCE)
    writer.write(ours)
    theirs = await reader.readexactly(NONCE)
    proof = await reader.readexactly(PROOF)
    nonces = ours + theirs
    if not hmac.compare_digest(proof, make_proof(key, LISTENS, nonces, certificate)):
        raise WrongPeer("the server does not know the key of the cluster")
    writer.write(make_proof(key, CONNECTS, nonces, certificate))


def make_proof(key: bytes, side: bytes, nonces: bytes, certificate: bytes) -> bytes:
    """Return the proof of one end."""
    return hmac.digest(key, side + nonces + hashlib.sha256(certificate).digest(), "sha256")
