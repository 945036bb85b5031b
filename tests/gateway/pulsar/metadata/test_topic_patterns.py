"""Patterns: what is read means what Java means, and nothing takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.gateway.pulsar.metadata.topic_patterns import (
    LENGTH_MAX,
    TopicPattern,
    UnsupportedPattern,
)

ATOMS = st.sampled_from(["a", "b", "-", "/", r"\.", ".", ".*", ".+", "[ab]", "[^a]", r"\d", r"\w"])


@given(st.lists(ATOMS, max_size=12).map("".join), st.text("ab-/.1", max_size=12))
def test_topic_pattern_matches_like_a_regular_expression(pattern, name):
    expected = re.fullmatch(pattern, name, re.DOTALL | re.ASCII) is not None

    assert TopicPattern(pattern).matches(name) == expected


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("persistent://public/default/.*", "public/default/orders"),
        ("public/default/orders", "public/default/orders"),
        ("^public/default/orders-.*$", "public/default/orders-1"),
        (r"public/default/a\$", "public/default/a$"),
        (r"public/.*/v\d\.\d", "public/x/v1.2"),
    ],
)
def test_patterns_as_people_write_them(pattern, name):
    assert TopicPattern(pattern).matches(name)
    assert not TopicPattern(pattern).matches(f"{name}\n/x"[1:])


@pytest.mark.parametrize(
    "pattern",
    ["(a|b)", "a*", "a+", ".*?", ".*+", ".{3}", "a?", "a|b", "[", "[a-", "[b-a]", r"\Q", r"\p{L}",
     r"\1", "a\\", "x" * (LENGTH_MAX + 1), "(", ")", "*", "+", r"[\d]", "[[a]]", "[a&&b]"],
)  # fmt: skip
def test_unsupported_pattern_raises_unsupported_pattern(pattern):
    with pytest.raises(UnsupportedPattern):
        TopicPattern(pattern)


def test_the_worst_pattern_takes_a_moment():
    pattern = TopicPattern(".*a" * 80 + "b")
    name = "a" * 1_000

    began = time.process_time()
    assert not pattern.matches(name)

    assert time.process_time() - began < 10  # not exponential, on a slow machine too
