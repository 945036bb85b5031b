"""What all consumer groups of a node have together: a bound, and how fast their members may beat.

Each group says what it weighs: names that its members read by, topics that it has seen with their
partitions, members. The sum has a bound (`total_max`); who would go over it is refused.

Members are told with each answer when to beat next. While a group changes they are told to come
soon, so that what one gives up reaches the other at once and not after two intervals of five
seconds: the first time after a change after 0.2 s, then after twice as long each time, up to the
usual interval. Who waits for something that others have comes once a second at least. The more
members a node has, the longer is the shortest interval, so that all of them together beat 500 times
a second at most because of this.
"""

from __future__ import annotations

from trilogue.broker.errors import GroupMaxSize

MEMBER_WEIGHT = 20  # in names: about 2 KB
SOON_MS = 200
SOON_MS_A_MEMBER = 2
WAITING_MS = 1_000
DOUBLED_MAX = 16


class Load:
    """The sums over all groups."""

    def __init__(self, total_max: int) -> None:
        self._total_max = total_max
        self.total = 0
        self.members = 0

    def change(self, weight: int, members: int) -> None:
        """A group weighs so much more (or less) and has so many more members."""
        self.total += weight
        self.members += members

    def check_room(self, weight: int) -> None:
        """Refuse what would weigh too much."""
        if self.total + weight > self._total_max:
            raise GroupMaxSize(
                f"all consumer groups may have {self._total_max} names, partitions and members"
            )

    def interval_ms(self, usual_ms: int, beats: int, *, waits: bool) -> int:
        """When a member shall beat next that has beaten so often since its group has changed."""
        soon_ms = max(SOON_MS, self.members * SOON_MS_A_MEMBER)
        interval_ms = soon_ms << min(beats, DOUBLED_MAX)
        if waits:
            interval_ms = min(interval_ms, max(soon_ms, WAITING_MS))
        return min(usual_ms, interval_ms)
