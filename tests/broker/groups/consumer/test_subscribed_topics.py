"""What the members of a group want, by names and patterns, while topics come and go."""

from __future__ import annotations

import pytest

from tests.broker.consumer_room import Room, names, refused
from trilogue.broker.errors import GroupMaxSize, InvalidPattern
from trilogue.broker.groups.consumer.context import ConsumerGroupContext, GroupLoad
from trilogue.broker.groups.consumer.patterns import PATTERN_SIZE_MAX, compile_pattern
from trilogue.broker.groups.consumer.subscribed_topics import (
    NAMES_MAX,
    NO_TOPICS,
    PATTERNS_MAX,
    SubscribedTopics,
)
from trilogue.broker.names import TopicName
from trilogue.log.steps import to_the_end


def everything(_: TopicName) -> bool:
    return True


class Watched:
    """The subscriptions of a group, over the topics of a broker."""

    def __init__(self, kept_max: int = 100) -> None:
        self.room = Room()
        self.context = ConsumerGroupContext(
            self.room.broker.cluster, self.room.timers, GroupLoad(10**6), kept_max
        )
        self.room.broker.cluster.listeners.append(
            lambda event, topic: self.context.note(topic.name, gone=event.value == "deleted")
        )
        self.subscribed = SubscribedTopics(self.context)

    def refresh_view(self, may_see=everything) -> bool:
        """What a heartbeat does."""
        return self.subscribed.is_stale() and to_the_end(self.subscribed.refresh_view(may_see))

    def includes(self, name: str) -> bool:
        (topic,) = names(name)
        return self.subscribed.includes(topic)

    def seen(self) -> set[str]:
        return {name.name for name in self.subscribed.view}


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("order", "orders", False),  # the whole name
        ("ord.*", "orders", True),
        ("orders|payments", "payments", True),
        ("[a-c]+", "abc", True),
        ("(?i)ORDERS", "orders", True),
        ("", "orders", False),
    ],
)
def test_a_pattern_matches_whole_names(pattern, name, matches):
    assert (compile_pattern(pattern)(name) is not None) == matches


@pytest.mark.parametrize("pattern", ["(", "a++", "(?!x)", r"(a)\1", "a{2000}", "x" * 5_000])
def test_pattern_outside_re2_is_refused(pattern):
    """KIP-848: "The regular expression uses the RE2 syntax": no look-around, no backreferences."""
    refused(InvalidPattern, lambda: compile_pattern(pattern))


def test_a_pattern_cannot_take_long():
    """The same pattern takes `re` longer than any test can wait."""
    assert compile_pattern("(a+)+" * 50)("a" * 5_000 + "b") is None
    assert PATTERN_SIZE_MAX == 4_096


def test_names_and_a_pattern_mean_both():
    watched = Watched()
    for name in ("a", "b1", "b2", "c"):
        watched.room.topic(name)

    watched.subscribed.change(NO_TOPICS, (names("a", "nowhere"), "b."))

    assert watched.refresh_view()
    assert watched.seen() == {"a", "b1", "b2"}
    ids = to_the_end(watched.subscribed.ids((names("a", "nowhere"), "b.")))
    assert ids == {watched.room.topics[each].topic_id for each in ("a", "b1", "b2")}
    assert watched.includes("nowhere")
    assert not watched.includes("c")


@pytest.mark.parametrize("kept_max", [100, 1], ids=["read", "too many to read"])
def test_topics_that_come_grow_and_go_are_news(kept_max):
    watched = Watched(kept_max)
    watched.subscribed.change(NO_TOPICS, (names("a"), "b.*"))
    assert not watched.refresh_view()

    for name in ("a", "b1", "c"):
        watched.room.topic(name)
    assert watched.refresh_view()
    assert watched.seen() == {"a", "b1"}
    watched.room.topic("c2")
    assert not watched.refresh_view()

    watched.room.grow("b1", 9)
    assert watched.refresh_view()
    assert {seen.partition_count for seen in watched.subscribed.view.values()} == {6, 9}

    watched.room.delete("b1")
    watched.room.delete("c")
    assert watched.refresh_view()
    assert watched.seen() == {"a"}

    before = watched.subscribed.view
    watched.room.delete("a")
    watched.room.topic("a")
    assert watched.refresh_view()
    assert watched.subscribed.view != before  # another topic of the same name


def test_topics_that_a_member_may_not_see_are_left_out_of_what_a_pattern_means():
    watched = Watched()
    watched.room.topic("public-1")
    watched.room.topic("secret-1")
    watched.subscribed.change(NO_TOPICS, (frozenset(), ".*"))

    watched.refresh_view(lambda name: name.name.startswith("public"))

    assert watched.seen() == {"public-1"}


def test_unused_subscriptions_are_removed():
    watched = Watched()
    watched.room.topic("a")
    subscription = names("a"), "a+"
    watched.subscribed.change(NO_TOPICS, subscription)
    watched.subscribed.change(NO_TOPICS, subscription)
    watched.refresh_view()

    watched.subscribed.change(subscription, NO_TOPICS)
    assert not watched.refresh_view()
    watched.subscribed.change(subscription, NO_TOPICS)

    assert watched.refresh_view()
    assert not watched.includes("a")


def test_members_that_want_the_same_share_it():
    watched = Watched()
    mine, yours = names("a", "b"), names("b", "a")
    watched.subscribed.change(NO_TOPICS, (mine, ""))

    assert watched.subscribed.share(yours) is mine
    assert watched.subscribed.share(names("c")) == names("c")


def test_a_group_has_only_so_many_patterns_and_names():
    watched = Watched()
    for number in range(PATTERNS_MAX):
        watched.subscribed.change(NO_TOPICS, (frozenset(), f"p{number}"))

    watched.subscribed.check_room((frozenset(), "p1"))
    refused(GroupMaxSize, lambda: watched.subscribed.check_room((frozenset(), "one more")))
    many = frozenset(TopicName("public", "default", f"t{each}") for each in range(NAMES_MAX + 1))
    refused(GroupMaxSize, lambda: watched.subscribed.check_room((many, "")))
