"""How long the first rebalance of an empty group waits for more members.

Kafka waits 3 s, so that a fleet that starts at once settles in one rebalance; but then every lone
consumer, every test and every restarted job waits 3 s in vain. Here the wait is short, and goes
on while there are signs that more will come:

- a member came, or was given an id and will come: the wait starts again, up to 3 s in all;
- while it waited a client sent FindCoordinator for this group, as each does before it joins, and
  has not joined yet; or newcomers are coming to other groups of the node, so that this one's may
  be among them. Either may mean nothing (tools send it too), so it counts a few times only.

A lone consumer goes on after one short wait. Members that come after the wait are what costs: those
who are there hear of them at their next heartbeat only, 3 s later with most clients.
"""

from __future__ import annotations

from trilogue.broker.groups.classic.members import GroupSettings, ResettableTimer

HINTS_MAX = 5
"""How many short waits in a row hints are worth: a client that sends FindCoordinator joins
within 180 ms on two cores where a hundred of them start (50 groups of two, librdkafka)."""


class InitialDelays:
    """Members that join new groups of one node: how many in all, and which groups wait for them."""

    def __init__(self) -> None:
        self.count = 0
        self.waits: dict[str, InitialDelay] = {}

    def expect(self, group: str) -> None:
        """Record a FindCoordinator request for a group."""
        wait = self.waits.get(group)
        if wait is not None:
            wait.expect()


class InitialDelay:
    """The wait of one group: a number of short ones, each set with the alarm."""

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        initial_delays: InitialDelays,
        alarm: ResettableTimer,
    ) -> None:
        self._group = group
        self._settings = settings
        self._initial_delays = initial_delays
        self._alarm = alarm
        self._left_ms = 0
        self._has_arrival = False
        self._expected = 0
        self._hints_left = 0
        self._seen = 0

    @property
    def is_on(self) -> bool:
        """Whether the group waits."""
        return self._initial_delays.waits.get(self._group) is self

    def begin(self) -> None:
        """The first member has come."""
        self._initial_delays.waits[self._group] = self
        some = self._settings.initial_delay_ms > 0
        self._left_ms = self._settings.initial_delay_max_ms if some else 0
        self._expected, self._hints_left = 0, HINTS_MAX
        self._set()

    def expect(self) -> None:
        """Record a FindCoordinator request: a client may be about to join."""
        self._expected += 1
        self._hints_left = HINTS_MAX

    def newcomer(self) -> None:
        """Record that an unknown client joins: it is no longer expected."""
        self._initial_delays.count += 1
        self._expected = max(0, self._expected - 1)

    def record_arrival(self) -> None:
        """Record that one more member waits for the rebalance."""
        self._has_arrival = True

    def goes_on(self, *, pending: bool) -> bool:
        """A short wait is over: whether another was set. `pending`: some were given ids."""
        if not self.is_on:
            return False
        if self._left_ms and (self._has_arrival or pending or self._has_hints()):
            self._set()
            return True
        self.end()
        return False

    def end(self) -> None:
        """Wait no more."""
        if self.is_on:
            del self._initial_delays.waits[self._group]

    def _has_hints(self) -> bool:
        if not self._hints_left or not (self._expected or self._initial_delays.count != self._seen):
            return False
        self._hints_left -= 1
        return True

    def _set(self) -> None:
        self._has_arrival, self._seen = False, self._initial_delays.count
        delay_ms = min(self._settings.initial_delay_ms, self._left_ms)
        self._left_ms -= delay_ms
        self._alarm.set(delay_ms)
