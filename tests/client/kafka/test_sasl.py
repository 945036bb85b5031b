"""The client's side of SASL, by RFC 7677's example, and what a server may not do."""

from __future__ import annotations

import pytest

from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.client_config import read_client_config
from trilogue.client.kafka.errors import AuthenticationFailed
from trilogue.client.kafka.options import ClientOptions
from trilogue.client.kafka.sasl import BearerExchange, PlainExchange, ScramExchange, make_exchange
from trilogue.client.kafka.security import Security
from trilogue.client.options import build_options

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> ScramExchange:
    return ScramExchange("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_scram_is_that_of_the_rfc():
    exchange = scram()

    assert exchange.first() == b"n,,n=user,r=" + NONCE.encode()
    assert exchange.answer(SERVER_FIRST) == CLIENT_FINAL
    assert not exchange.is_done
    assert exchange.answer(SERVER_FINAL) == b""
    assert exchange.is_done


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"4096", b"1"),
        SERVER_FIRST.replace(b"4096", b"99999999"),
        SERVER_FIRST.replace(b"W22Z", b"%%%%"),
    ],
)
def test_a_servers_first_message_that_is_none(first: bytes):
    with pytest.raises(AuthenticationFailed):
        scram().answer(first)


@pytest.mark.parametrize("final", [b"", b"v=AAAA", b"e=other-error", SERVER_FIRST])
def test_a_server_that_does_not_know_the_password_is_not_trusted(final: bytes):
    exchange = scram()
    exchange.answer(SERVER_FIRST)

    with pytest.raises(AuthenticationFailed):
        exchange.answer(final)
    assert not exchange.is_done


def test_plain_and_bearer_tokens():
    plain = PlainExchange("a", "b")
    assert plain.first() == b"\0a\0b"
    assert plain.answer(b"") == b""
    assert plain.is_done

    bearer = BearerExchange("t")
    assert bearer.first() == b"n,,\x01auth=Bearer t\x01\x01"
    assert bearer.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert not bearer.is_done


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("PLAIN", "", "x"), ("SCRAM-SHA-512", "x", ""), ("OAUTHBEARER", "", "")],
)
def test_missing_credential_of_a_mechanism_is_named(mechanism: str, user: str, password: str):
    with pytest.raises(InvalidOption, match=mechanism):
        make_exchange(mechanism, user, password, None)


def test_options_that_do_not_fit_are_refused_and_secrets_are_not_shown(tmp_path):
    with pytest.raises(InvalidOption, match="security_protocol"):
        Security(protocol="tls")
    with pytest.raises(InvalidOption, match="sasl_mechanism"):
        Security(protocol="sasl_plaintext", mechanism="GSSAPI")
    with pytest.raises(InvalidOption, match="sasl_username needs"):
        Security(username="u")
    with pytest.raises(InvalidOption, match="ssl_endpoint_identification_algorithm"):
        build_options(ClientOptions, {"ssl_endpoint_identification_algorithm": "htps"})
    with pytest.raises(InvalidOption, match="No such file"):
        Security(protocol="ssl", ca=str(tmp_path / "none.pem"))
    assert "hunter2" not in repr(
        Security(protocol="sasl_plaintext", username="u", password="hunter2")
    )


def test_files_of_librdkafka_and_java_are_read(tmp_path):
    path = tmp_path / "client.conf"
    path.write_text(
        "# a comment\nbootstrap.servers=h:1,i:2\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanisms = SCRAM-SHA-256\nsasl.username=u\nsasl.password=a=b\nlinger.ms=5\n"
    )
    assert read_client_config(path) == (
        "h:1,i:2",
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "u",
            "sasl_password": "a=b",
        },
    )
    path.write_text('sasl.jaas.config=x.Y required username="u" password="a\\"b";\n')
    assert read_client_config(path)[1] == {"sasl_username": "u", "sasl_password": 'a"b'}
    path.write_text(
        "sasl.jaas.config = x.Y required \\\n  username='u' \\\n  password=p;\nclient.id: c\n"
    )
    assert read_client_config(path)[1] == {
        "sasl_username": "u",
        "sasl_password": "p",
        "client_id": "c",
    }
    path.write_text("enable.ssl.certificate.verification=false\n")
    with pytest.raises(InvalidOption, match="line 1: enable"):
        read_client_config(path)
    path.write_text("nonsense\n")
    with pytest.raises(InvalidOption, match="line 1"):
        read_client_config(path)
