"""Sessions expire in the order of their last request, never early, and are bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilogue.gateway.tubemq.sessions import IDS_MAX, ClientSessions


def test_a_client_is_there_until_it_was_silent_for_the_time():
    sessions: ClientSessions[str] = ClientSessions(30.0, limit=10)
    sessions.put_session("a", "A", 0.0)
    sessions.put_session("b", "B", 10.0)
    assert sessions.touch("a", 29.0) == "A"

    assert sessions.expire(39.9) == []
    assert sessions.expire(40.0) == [("b", "B")]
    assert sessions.find_session("a") == "A"
    assert sessions.expire(59.0) == [("a", "A")]
    assert len(sessions) == 0


def test_there_is_no_room_for_one_more_but_for_the_same_again():
    sessions: ClientSessions[int] = ClientSessions(30.0, limit=2)

    assert sessions.put_session("a", 1, 0.0)
    assert sessions.put_session("b", 2, 0.0)
    assert not sessions.put_session("c", 3, 0.0)
    assert sessions.put_session("a", 4, 0.0)
    assert sessions.find_session("a") == 4


def test_all_ids_together_have_so_many_characters_and_no_more():
    sessions: ClientSessions[int] = ClientSessions(30.0, limit=10)
    half = IDS_MAX // 2

    assert sessions.put_session("a" * half, 1, 0.0)
    assert sessions.put_session("b" * half, 2, 1.0)
    assert not sessions.put_session("c", 3, 1.0)
    assert sessions.put_session("b" * half, 4, 1.0)
    sessions.expire(30.0)
    assert sessions.put_session("c", 5, 30.0)
    sessions.remove("b" * half)
    assert sessions.put_session("d" * half, 6, 30.0)


def test_unknown_session_is_neither_touched_nor_removed():
    sessions: ClientSessions[int] = ClientSessions(30.0, limit=2)

    assert sessions.touch("a", 0.0) is None
    assert sessions.remove("a") is None
    assert "a" not in sessions


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.sampled_from(["put_session", "touch", "remove"]))
    )
)
def test_silent_sessions_expire(steps):
    sessions: ClientSessions[None] = ClientSessions(5.0, limit=100)
    touch: dict[str, int] = {}
    for now, (client, step) in enumerate(steps):
        gone = {each for each, at in touch.items() if now - at >= 5}
        assert {each for each, _ in sessions.expire(now)} == gone
        for each in gone:
            del touch[each]
        if step == "remove":
            sessions.remove(client)
            touch.pop(client, None)
        elif step == "put_session" or client in touch:
            getattr(sessions, step)(client, *((None,) if step == "put_session" else ()), now)
            touch[client] = now
    assert [each for each, _ in sessions.items()] == sorted(touch, key=touch.__getitem__)
