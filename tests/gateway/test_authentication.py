"""Failed logins of a user from an address: guesses are not checked, hundreds at once neither."""

from __future__ import annotations

import asyncio

import pytest
from cryptography.fernet import Fernet

from tests.broker.access.test_users import Client
from tests.gateway.loop import InlineExecutor, on_loop
from tests.waiting import wait_on_loop
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.scram import ScramVerifier, make_verifier
from trilogue.broker.access.users import User, Users, make_user
from trilogue.broker.errors import AuthenticationFailed, TooManyLogins
from trilogue.gateway import authentication
from trilogue.gateway.address_turns import AddressTurns, TooManyWaiting
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.failed_logins import (
    FAILURES_MAX,
    FAILURES_PER_S,
    TOO_MANY_FAILURES_OF_USER,
    FailedLogins,
)
from trilogue.gateway.kafka.security.sasl_login import SaslLogin

NOW_MS = 1_700_000_000_000
HERE, THERE = "192.0.2.1", "192.0.2.2"
PASSWORD = b"wonder"
MECHANISM = "SCRAM-SHA-256"
GUESSES = 300
PATIENCE_S = 20.0


class Logins:
    """An authenticator with the users alice and bob, a clock, and the checks that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.lines: list[dict[str, object]] = []
        self.checks: list[bytes] = []
        users = Users({})
        for name in ("alice", "bob"):
            users.plan_put(make_user(name, PASSWORD, NOW_MS, key=Fernet.generate_key())).apply()
        audit = AuditLog(self.lines.append, lambda: NOW_MS)
        self.authenticator = Authenticator(users, audit=audit, now_ms=lambda: NOW_MS)
        self.authenticator._failures = FailedLogins(lambda: self.now_s)
        self.authenticator._pool = InlineExecutor()

        def check(password: bytes, _hashed: object, _verifiers: object, _shape: object) -> bool:
            self.checks.append(password)
            return password == PASSWORD

        monkeypatch.setattr(authentication, "check_password", check)

    async def plain(self, user: str, password: bytes, host: str = HERE, protocol: str = "kafka"):
        return await self.authenticator.verify_password(
            user, password, protocol=protocol, host=host
        )

    async def reasons(self, user: str, count: int, **how: str) -> list[str]:
        """The reasons of so many wrong passwords at once."""
        found = await asyncio.gather(
            *(self.plain(user, b"guess %d" % number, **how) for number in range(count)),
            return_exceptions=True,
        )
        return [str(each) for each in found]


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> Logins:
    return Logins(monkeypatch)


@pytest.mark.parametrize("user", ["alice", "unknown"])
@on_loop
async def test_of_hundreds_of_guesses_at_once_a_few_are_checked(logins: Logins, user: str):
    """An unknown user has as many checks as a known one."""
    reasons = await logins.reasons(user, GUESSES)

    assert len(logins.checks) == FAILURES_MAX
    assert reasons.count(TOO_MANY_FAILURES_OF_USER) == GUESSES - FAILURES_MAX
    with pytest.raises(AuthenticationFailed, match=TOO_MANY_FAILURES_OF_USER):
        await logins.plain(user, PASSWORD)
    assert len(logins.checks) == FAILURES_MAX


@on_loop
async def test_other_users_of_the_host_and_other_hosts_of_the_user_log_in(logins: Logins):
    await logins.reasons("alice", GUESSES)

    assert (await logins.plain("bob", PASSWORD)).principal.name == "bob"
    assert (await logins.plain("alice", PASSWORD, host=THERE)).principal.name == "alice"


@on_loop
async def test_the_failures_at_one_listener_count_at_the_others(logins: Logins):
    await logins.reasons("alice", FAILURES_MAX, protocol="kafka")

    with pytest.raises(AuthenticationFailed, match=TOO_MANY_FAILURES_OF_USER):
        await logins.plain("alice", PASSWORD, protocol="pulsar")


@on_loop
async def test_failures_are_forgotten_with_time(logins: Logins):
    await logins.reasons("alice", FAILURES_MAX)
    logins.now_s += 1 / FAILURES_PER_S

    assert (await logins.plain("alice", PASSWORD)).principal.name == "alice"


@on_loop
async def test_a_password_that_was_right_before_is_still_accepted(logins: Logins):
    await logins.plain("alice", PASSWORD)
    await logins.reasons("alice", GUESSES)

    assert (await logins.plain("alice", PASSWORD)).principal.name == "alice"


@on_loop
async def test_hundreds_of_clients_with_the_right_password_share_a_check(logins: Logins):
    found = await asyncio.gather(*(logins.plain("alice", PASSWORD) for _ in range(GUESSES)))

    assert {each.principal.name for each in found} == {"alice"}
    assert len(logins.checks) == 1


def begin(logins: Logins, host: str) -> SaslLogin:
    login = SaslLogin(logins.authenticator, host, (MECHANISM,), lambda _login: None)
    login.begin(MECHANISM, bare=False)
    return login


async def scram(login: SaslLogin, user: str, password: bytes) -> bytes:
    client = Client(MECHANISM, user, password)
    return await login.answer(client.final(await login.answer(client.first())))


@pytest.mark.parametrize("user", ["alice", "unknown"])
@on_loop
async def test_of_hundreds_of_scram_exchanges_a_few_are_checked(logins: Logins, user: str):
    """All of them have their first answer before one of them fails."""
    client = Client(MECHANISM, user, b"guess")
    exchanges = [begin(logins, HERE) for _ in range(FAILURES_MAX + 20)]
    answers = [await each.answer(client.first()) for each in exchanges]
    reasons = []
    for exchange, answer in zip(exchanges, answers, strict=True):
        with pytest.raises(AuthenticationFailed) as problem:
            await exchange.answer(client.final(answer))
        reasons.append(str(problem.value))

    assert reasons.count(TOO_MANY_FAILURES_OF_USER) == 20
    with pytest.raises(AuthenticationFailed, match=TOO_MANY_FAILURES_OF_USER):
        await scram(begin(logins, HERE), user, PASSWORD)
    assert (await scram(begin(logins, HERE), "bob", PASSWORD)).startswith(b"v=")
    assert (await scram(begin(logins, THERE), "alice", PASSWORD)).startswith(b"v=")


@on_loop
async def test_long_names_do_not_fill_memory(logins: Logins):
    await logins.reasons("a" * 60_000, 1)

    (key,) = logins.authenticator._failures._counts
    assert len(key) < 300


@pytest.mark.parametrize("change", ["password", "deletion"])
@on_loop
async def test_an_exchange_that_began_before_a_change_of_its_user_is_refused(
    logins: Logins, change: str
):
    client, login = Client(MECHANISM, "alice", PASSWORD), begin(logins, HERE)
    answer = await login.answer(client.first())
    change_user(logins, change)

    with pytest.raises(AuthenticationFailed):
        await login.answer(client.final(answer))
    assert login.principal is None
    assert logins.lines[-1]["event"] == "login.failed"


@pytest.mark.parametrize("change", ["password", "deletion"])
@on_loop
async def test_a_change_between_the_check_of_a_password_and_its_login_refuses_it(
    logins: Logins, change: str
):
    waiting = asyncio.create_task(logins.plain("alice", PASSWORD))
    await wait_on_loop(lambda: logins.checks and not logins.authenticator._checks, every=0)
    change_user(logins, change)

    with pytest.raises(AuthenticationFailed):
        await waiting


@on_loop
async def test_the_salt_of_an_unknown_user_is_the_same_at_every_node_and_start(logins: Logins):
    """Known users' salts are: two answers would tell which names are known."""
    users, audit = logins.authenticator.users, logins.authenticator.audit

    def salt(name: str, key: bytes) -> str:
        node = Authenticator(users, audit=audit, now_ms=lambda: NOW_MS, signing_key=lambda: key)
        first = node.start_scram(MECHANISM).respond(Client(MECHANISM, name).first())
        return first.decode().split(",")[1]

    assert salt("unknown", b"the key file") == salt("unknown", b"the key file")
    assert len({salt(name, b"the key file") for name in ("unknown", "other", "alice")}) == 3
    assert salt("unknown", b"the key file") != salt("unknown", b"another file")


@on_loop
async def test_a_password_of_an_unknown_user_is_checked_with_the_work_of_a_known_one(
    monkeypatch: pytest.MonkeyPatch,
):
    """Users that Kafka's tools made with 8,192 iterations."""
    users = Users({})
    verifier = make_verifier("SCRAM-SHA-512", PASSWORD, iterations=8_192)
    users.plan_put(User("alice", NOW_MS, {"SCRAM-SHA-512": verifier})).apply()
    authenticator = Authenticator(users, audit=AuditLog([].append, int), now_ms=lambda: NOW_MS)
    authenticator._pool = InlineExecutor()
    work: list[tuple[str, int]] = []

    def note(mechanism: str, verifier: ScramVerifier, password: bytes) -> bool:
        work.append((mechanism, verifier.iterations))
        return False

    monkeypatch.setattr("trilogue.broker.access.scram.check_password", note)
    for user in ("alice", "unknown"):
        with pytest.raises(AuthenticationFailed):
            await authenticator.verify_password(user, b"guess", protocol="kafka", host=HERE)
    assert work == [("SCRAM-SHA-512", 8_192)] * 2


def change_user(logins: Logins, change: str) -> None:
    users = logins.authenticator.users
    if change == "deletion":
        users.plan_delete("alice", NOW_MS + 1).apply()
    else:
        other = make_user("alice", b"another", NOW_MS + 1, key=Fernet.generate_key())
        users.plan_put(other).apply()


@on_loop
async def test_logins_from_one_address_leave_room_for_others(logins: Logins):
    """Each of another user, so that none has failed often. Who has no room may try again."""
    most = authentication.WAITING_PER_HOST_MAX
    storm = [
        asyncio.create_task(logins.plain(f"user-{number}", b"guess", "192.0.2.9"))
        for number in range(2 * most)
    ]
    await asyncio.sleep(0)
    login = await logins.plain("bob", PASSWORD, "192.0.2.10")
    found = [str(each) for each in await asyncio.gather(*storm, return_exceptions=True)]

    assert login.principal.name == "bob"
    assert found.count("too many logins at once") == most - authentication.POOL_THREADS
    assert not logins.authenticator._under_way


class Checks:
    """Checks that wait for one thread, which this has; then those that had it, in order."""

    def __init__(self, waiting_max: int = 100) -> None:
        self.now_s = 0.0
        self.turns = AddressTurns(
            1, waiting_max=waiting_max, patience_s=PATIENCE_S, monotonic=lambda: self.now_s
        )
        self.first = self.turns.request("first")
        self.started: list[str] = []
        self.dropped: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, host: str, count: int = 1) -> asyncio.Task[None]:
        """Begin so many, which are in the queue then."""
        self.tasks += [asyncio.create_task(self.check(host)) for _ in range(count)]
        await asyncio.sleep(0)
        return self.tasks[-1]

    async def check(self, host: str) -> None:
        async with self.turns.hold(self.turns.request(host)) as has_place:
            (self.started if has_place else self.dropped).append(host)

    async def finish(self) -> None:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert (self.turns._free, self.turns._count, self.turns._waiting) == (1, 0, {})


@on_loop
async def test_addresses_take_turns():
    checks = Checks()
    async with checks.turns.hold(checks.first):
        await checks.begin("a", 5)
        await checks.begin("b", 2)
        await checks.begin("c")
    await checks.finish()

    assert "".join(checks.started) == "abcabaaa"


@on_loop
async def test_a_full_queue_has_room_for_an_address_with_less():
    checks = Checks(waiting_max=4)
    async with checks.turns.hold(checks.first):
        await checks.begin("a", 4)
        with pytest.raises(TooManyWaiting):
            checks.turns.request("a")
        await checks.begin("b", 2)
        with pytest.raises(TooManyWaiting):
            checks.turns.request("b")
    await checks.finish()

    assert checks.dropped == ["a", "a"]
    assert "".join(checks.started) == "abab"


@on_loop
async def test_a_turn_that_comes_too_late_is_passed_over():
    """Its client has given up."""
    checks = Checks()
    async with checks.turns.hold(checks.first):
        await checks.begin("a", 2)
        checks.now_s = PATIENCE_S + 1
        await checks.begin("b")
    await checks.finish()

    assert (checks.dropped, checks.started) == (["a", "a"], ["b"])


@on_loop
async def test_a_login_that_was_not_checked_may_be_tried_again(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
):
    """The error of those without room is another one than that of a wrong password."""
    turns = AddressTurns(1, waiting_of_address_max=0)
    monkeypatch.setattr(logins.authenticator, "_turns", turns)
    async with turns.hold(turns.request(HERE)):
        with pytest.raises(TooManyLogins):
            await logins.plain("alice", PASSWORD)
    assert logins.lines[-1]["reason"] == authentication.TOO_MANY_AT_ONCE

    assert (await logins.plain("alice", PASSWORD)).principal.name == "alice"


@on_loop
async def test_checks_that_are_cancelled_pass_their_turn_on():
    checks = Checks()
    async with checks.turns.hold(checks.first):
        waiting = await checks.begin("a")
        with_turn = await checks.begin("b")
        await checks.begin("c")
        waiting.cancel()
        await asyncio.sleep(0)
    with_turn.cancel()  # it has its turn, and does not run yet
    await checks.finish()

    assert checks.started == ["c"]


@on_loop
async def test_two_addresses_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch):
    """A third logs in, and is next but for one check of each."""
    logins = Logins(monkeypatch)
    most = authentication.WAITING_PER_HOST_MAX
    storm = [
        asyncio.create_task(logins.plain(f"user-{number}", b"guess", f"192.0.2.{number % 3}"))
        for number in range(3 * most)
    ]
    await asyncio.sleep(0)
    login = await logins.plain("bob", PASSWORD, "192.0.2.10")
    checked = len(logins.checks)
    found = [str(each) for each in await asyncio.gather(*storm, return_exceptions=True)]

    assert login.principal.name == "bob"
    assert checked <= 12
    assert found.count(authentication.TOO_MANY_AT_ONCE) >= most - authentication.POOL_THREADS
    assert not logins.authenticator._under_way
