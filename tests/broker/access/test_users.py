"""Users and their secrets: what is stored, which passwords are right, SCRAM against its attacks."""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec
import pytest
from cryptography.fernet import Fernet

from tests.broker.topics.test_namespaces import House
from trilogue.broker.access.passwords import (
    check_password,
    decrypt_password,
    encrypt_password,
    hash_password,
)
from trilogue.broker.access.scram import (
    HASHES,
    ScramExchange,
    ScramShape,
    ScramVerifier,
    imagine_verifier,
    make_verifier,
)
from trilogue.broker.access.users import User, Users
from trilogue.broker.errors import AuthenticationFailed, ConcurrentChange, InvalidRequest

PASSWORD = b"a pencil, really"
SHA256 = "SCRAM-SHA-256"


@pytest.fixture
def house():
    return House()


def put(house, user):
    house.carry_out(house.broker.users.plan_put(user))


def test_users_outlive_a_restart_and_their_secrets_are_not_stored(house):
    user = User(
        "alice",
        5,
        scram={name: make_verifier(name, PASSWORD) for name in HASHES},
        password=hash_password(PASSWORD),
    )
    put(house, user)

    settings = house.meta.state.settings
    again = Users(settings)
    assert again.find("alice") == user
    assert [each.name for each in again] == ["alice"]
    assert PASSWORD.decode() not in str(dict(settings))
    assert base64.b64encode(PASSWORD).decode() not in str(dict(settings))


def test_a_deleted_user_is_gone_and_its_tokens_are_revoked(house):
    changed = []
    house.broker.users.listeners.append(changed.append)
    put(house, User("alice", 5))
    house.carry_out(house.broker.users.plan_delete("alice", 77))

    again = Users(house.meta.state.settings)
    assert again.find("alice") is None
    assert len(again) == 0
    assert again.tokens_from_ms("alice") == 77
    assert changed == ["alice", "alice"]
    with pytest.raises(InvalidRequest):
        house.broker.users.plan_delete("alice", 78)


def test_tokens_are_revoked_for_names_without_a_user_too(house):
    house.carry_out(house.broker.users.plan_revoke_tokens("external", 9))

    assert house.broker.users.tokens_from_ms("external") == 9
    assert house.broker.users.find("external") is None


def test_of_two_changes_at_once_the_second_is_refused(house):
    first = house.broker.users.plan_put(User("alice", 1))
    second = house.broker.users.plan_put(User("alice", 2))
    house.carry_out(first)

    with pytest.raises(ConcurrentChange):
        house.carry_out(second)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300])
def test_names_that_no_user_can_have(house, name):
    with pytest.raises(InvalidRequest):
        house.broker.users.plan_put(User(name, 1))


def test_verifiers_without_enough_work_are_refused(house):
    weak = ScramVerifier(b"salt", 4_095, b"", b"")
    with pytest.raises(InvalidRequest, match="iterations"):
        house.broker.users.plan_put(User("alice", 1, scram={SHA256: weak}))


BOTH = User("a", 1, {SHA256: make_verifier(SHA256, b"another")}, hash_password(PASSWORD))
ONLY_SCRAM = User("a", 1, {"SCRAM-SHA-512": make_verifier("SCRAM-SHA-512", PASSWORD)})


@pytest.mark.parametrize(
    ("user", "password", "right"),
    [
        (BOTH, PASSWORD, True),
        (BOTH, b"another", False),
        (ONLY_SCRAM, PASSWORD, True),
        (ONLY_SCRAM, b"wrong", False),
        (ONLY_SCRAM, b"", False),
        (User("a", 1), b"", False),
        (None, b"", False),
        (None, PASSWORD, False),
    ],
)
def test_a_password_is_checked_by_its_hash_or_else_by_a_verifier(user, password, right):
    secrets = (None, {}) if user is None else (user.password, user.scram)
    assert check_password(password, *secrets) is right


def test_passwords_for_signatures_need_the_key_file():
    key = Fernet.generate_key()
    stored = encrypt_password(PASSWORD, key)

    assert PASSWORD.decode() not in stored
    assert decrypt_password(stored, key) == PASSWORD
    assert decrypt_password(stored, Fernet.generate_key()) is None


class Client:
    """The client's side of SCRAM, written from the RFC."""

    def __init__(self, mechanism=SHA256, user="alice", password=PASSWORD, header="n,,"):
        self.hash, self.password, self.header = HASHES[mechanism], password, header
        self.bare = f"n={user},r=clientnonce"

    def first(self):
        return (self.header + self.bare).encode()

    def final(self, answer, *, nonce=None, header=None):
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password, salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        channel = base64.b64encode((header or self.header).encode()).decode()
        without = f"c={channel},r={nonce or fields['r']}"
        signed = f"{self.bare},{answer.decode()},{without}".encode()
        stored = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored, signed, self.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()


def exchange(mechanism=SHA256, users=("alice",)):
    verifier = make_verifier(mechanism, PASSWORD)
    return ScramExchange(
        mechanism,
        lambda name, _extensions: verifier if name in users else None,
        imagine=lambda name, _extensions: imagine_verifier(ScramShape(mechanism), name, b"k" * 32),
    )


@pytest.mark.parametrize("mechanism", HASHES)
def test_the_right_password_logs_in_once(mechanism):
    server, client = exchange(mechanism), Client(mechanism)
    final = client.final(server.respond(client.first()))

    assert not server.is_done
    assert server.respond(final).startswith(b"v=")
    assert server.is_done
    assert server.user == "alice"
    with pytest.raises(AuthenticationFailed):
        server.respond(final)  # replayed in this exchange
    other = exchange(mechanism)
    other.respond(client.first())
    with pytest.raises(AuthenticationFailed):
        other.respond(final)  # replayed in another


@pytest.mark.parametrize("wrong", [{"password": b"wrong"}, {"user": "mallory"}])
def test_a_wrong_password_and_an_unknown_user_look_the_same(wrong):
    server, client = exchange(), Client(**wrong)
    answer = server.respond(client.first())
    assert b",s=" in answer

    with pytest.raises(AuthenticationFailed, match="the user or the password is wrong"):
        server.respond(client.final(answer))


def test_an_unknown_user_has_one_salt():
    one, two = (exchange(users=()).respond(Client().first()) for _ in range(2))

    assert one.split(b",")[1:] == two.split(b",")[1:]
    assert one.split(b",")[0] != two.split(b",")[0]


def choose_shapes(users, count=400):
    digests = [hashlib.sha256(b"%d" % number).digest() for number in range(count)]
    return [users.choose_shape(SHA256, each) for each in digests]


def test_unknown_users_have_the_shapes_of_known_ones_as_often(house):
    """`kafka-configs.sh` makes users with salts and iterations of its own."""
    users = house.broker.users
    assert set(choose_shapes(users)) == {ScramShape(SHA256, 4_096, 32)}
    for number in range(40):
        salt, iterations = (bytes(26), 8_192) if number % 4 else (bytes(32), 4_096)
        verifier = ScramVerifier(salt, iterations, b"", b"")
        put(house, User(f"user-{number}", 1, scram={SHA256: verifier}))

    found = choose_shapes(users)
    assert found == choose_shapes(Users(house.meta.state.settings))
    assert set(found) == {ScramShape(SHA256, 8_192, 26), ScramShape(SHA256, 4_096, 32)}
    assert found.count(ScramShape(SHA256, 8_192, 26)) == pytest.approx(300, abs=40)
    for number in range(40):
        if number % 4:
            house.carry_out(users.plan_delete(f"user-{number}", 2))
    assert set(choose_shapes(users)) == {ScramShape(SHA256, 4_096, 32)}
    assert users.choose_first_shape(bytes(32)) == ScramShape(SHA256, 4_096, 32)


def test_another_shape_of_an_unknown_user_has_another_salt():
    first, second = (
        imagine_verifier(ScramShape(SHA256, iterations, 20), "none", b"key")
        for iterations in (4_096, 8_192)
    )
    assert len(first.salt) == len(second.salt) == 20
    assert first.salt != second.salt


def test_a_nonce_as_librdkafka_2_0_has_it_is_accepted():
    """Its own nonce comes twice: Debian's kcat; so does a real Kafka 3.9.1."""
    server, client = exchange(), Client()
    answer = server.respond(client.first())
    nonce = dict(part.split("=", 1) for part in answer.decode().split(","))["r"]

    assert server.respond(client.final(answer, nonce=f"clientnonce{nonce}")).startswith(b"v=")
    assert server.is_done


@pytest.mark.parametrize("change", [{"nonce": "clientnonceforeign"}, {"header": "y,,"}])
def test_a_foreign_nonce_or_header_is_refused(change):
    server, client = exchange(), Client()
    answer = server.respond(client.first())
    with pytest.raises(AuthenticationFailed):
        server.respond(client.final(answer, **change))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=root,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"n,,r=x,n=alice",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=x,junk",
        b"\xff\xfe",
        b"n,,n=" + b"a" * 10_000 + b",r=x",
    ],
)
def test_first_messages_that_are_none(message):
    with pytest.raises(AuthenticationFailed):
        exchange().respond(message)


@pytest.mark.parametrize("message", [b"", b"c=biws", b"c=biws,r=x,p=%%%", b"r=x,c=biws,p=AA=="])
def test_last_messages_that_are_none(message):
    server = exchange()
    server.respond(Client().first())
    with pytest.raises(AuthenticationFailed):
        server.respond(message)


def test_names_may_have_commas_and_the_client_may_name_itself():
    server = exchange(users=("a,b=c",))
    client = Client(user="a=2Cb=3Dc", header="n,a=a=2Cb=3Dc,")
    server.respond(client.final(server.respond(client.first())))
    assert server.user == "a,b=c"


def test_rows_of_later_versions_can_be_read():
    text = msgspec.json.encode({"name": "a", "changed_ms": 1, "new": True}).decode()
    assert Users({"access/users/a": text}).find("a") == User("a", 1)
