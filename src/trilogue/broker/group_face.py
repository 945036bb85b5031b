"""What anybody may see of a classic group, member or not; `group.py` adds what it does."""

from __future__ import annotations

from collections.abc import Callable

from trilogue.broker.any_group import CLASSIC, CONSUMER_PROTOCOL, ReadWishes
from trilogue.broker.group_members import GroupSettings, Members
from trilogue.broker.group_states import State
from trilogue.broker.names import TopicName


class ClassicFace:
    """The name, state, protocol and members of a classic group."""

    def __init__(self, name: str, settings: GroupSettings, read_wishes: ReadWishes) -> None:
        self.name = name
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.members = Members(settings)
        self._settings = settings
        self._read_wishes = read_wishes

    @property
    def type(self) -> str:
        """Its members assign among themselves."""
        return CLASSIC

    @property
    def state_name(self) -> str:
        """The state as tools show it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    def subscribes_to(self, topic: TopicName) -> bool:
        """Whether some member reads the topic."""
        return self.reading()(topic)

    def reading(self) -> Callable[[TopicName], bool]:
        """Whether some member reads a topic; what members say is looked at once for all topics.

        While the members have not settled on a protocol, or say what nobody here can read, a group
        of readers may read anything. Members of other kinds than readers (Connect's workers) say
        nothing of topics.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            return lambda _: False
        topics: set[TopicName] = set()
        for member in self.members:
            wishes = self._read_wishes(member.metadata(self.protocol)) if self.protocol else None
            if wishes is None:
                return lambda _: True
            topics |= wishes.topics
        return topics.__contains__

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Tell positions to everybody: classic members have no epochs."""
