"""The private authority of a secured node, the certificate of its listeners, and its own.

The authority is made once and lives 10 years. The server's certificate lives 825 days, which all
clients accept, and is made again at a start within its last 30 days or when the node has a name
that is not in it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Collection
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trilogue.node.secure.files import write_private

CA_LIFETIME = dt.timedelta(days=3_650)
SERVER_LIFETIME = dt.timedelta(days=825)
RENEWAL = dt.timedelta(days=30)
BACKDATED = dt.timedelta(hours=1)  # for clocks that are behind
SERVER_FILE, NODE_FILE = "server.pem", "node.pem"  # the keys end in .key
AUTHORITY_NAME, SERVER_NAME = "Trilogue private CA", "Trilogue"


class AuthorityExpired(Exception):
    """The private authority has expired: its clients need another one."""


def renew_certificates(tls: Path, names: Collection[str], now: dt.datetime) -> bool:
    """Make what is missing or ends soon; return whether the server has another certificate."""
    authority, key = tls / "ca.pem", tls / "ca.key"
    if not authority.exists():
        make_authority(authority, key, now)
    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    if issuer.not_valid_after_utc <= now:
        raise AuthorityExpired(
            f"{authority} has expired: remove {tls} to make another, and give it to all clients"
        )
    server = tls / SERVER_FILE
    if server.exists() and _is_good(server, issuer, names, now):
        return False
    _make_certificate(
        server,
        _name(SERVER_NAME),
        issuer,
        _load_key(key),
        purpose=ExtendedKeyUsageOID.SERVER_AUTH,
        now=now,
        names=names,
    )
    return True


def renew_node_certificate(tls: Path, name: str, now: dt.datetime) -> None:
    """Make the certificate by which a node logs in at other nodes, or renew it before its end."""
    issuer = x509.load_pem_x509_certificate((tls / "ca.pem").read_bytes())
    path = tls / NODE_FILE
    if path.exists():
        found = x509.load_pem_x509_certificate(path.read_bytes())
        if found.subject == _name(name) and _lasts(found, issuer, now):
            return
    key, purpose = _load_key(tls / "ca.key"), ExtendedKeyUsageOID.CLIENT_AUTH
    _make_certificate(path, _name(name), issuer, key, purpose=purpose, now=now)


def _lasts(found: x509.Certificate, issuer: x509.Certificate, now: dt.datetime) -> bool:
    return found.issuer == issuer.subject and found.not_valid_after_utc - RENEWAL > now


def _is_good(
    path: Path, issuer: x509.Certificate, names: Collection[str], now: dt.datetime
) -> bool:
    found = x509.load_pem_x509_certificate(path.read_bytes())
    if not _lasts(found, issuer, now):
        return False
    known = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(_alternatives(names)) <= set(known)


def make_authority(path: Path, key_path: Path, now: dt.datetime) -> None:
    """Make the private authority, the certificate last."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(AUTHORITY_NAME)
    usage = _usage(digital_signature=False, authority=True)
    certificate = (
        _builder(name, name, key, now, now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _private_pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _make_certificate(
    path: Path,
    subject: x509.Name,
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    purpose: x509.ObjectIdentifier,
    now: dt.datetime,
    names: Collection[str] = (),
) -> None:
    """Make a certificate and its key; the certificate is written last, with its chain."""
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + SERVER_LIFETIME, issuer.not_valid_after_utc)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(subject, issuer.subject, key, now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True, authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName(_alternatives(names))
        builder = builder.add_extension(alternatives, critical=False)
    chain = [builder.sign(issuer_key, hashes.SHA256()), issuer]
    write_private(path.with_suffix(".key"), _private_pem(key))
    write_private(path, b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, digital_signature: bool, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(names: Collection[str]) -> list[x509.GeneralName]:
    alternatives: list[x509.GeneralName] = []
    for name in sorted(set(names)):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    return alternatives


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), path
    return key
