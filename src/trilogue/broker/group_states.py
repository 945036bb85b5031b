"""The states of a group, what may happen, and what is done about it: one table.

                 JOIN                    JOINED (all, or the time is over)
      Empty ───────────► Preparing ────────────────────────► Completing
        ▲                │  ▲   ▲                             │   │
        └── NONE_LEFT ───┘  │   └── JOIN, REJOIN, DEPART, ────┘   │ LEAD (the leader's assignment)
                            │       REPLACE, SYNC_OVER            ▼
                            └── JOIN, REJOIN, DEPART, ─────── Stable
                                REPEAT_LEADER, REPLACE_CHANGED, SYNC_OVER
      (Empty ── FORGET ──► Dead, Empty ── RESUME ──► Stable, others ── DISSOLVE ──► Dead)

What is not in the table cannot happen: an empty group has no members who could speak, a dead one is
not found any more, and timers are called off when the state they belong to ends. `group.py` obeys.
"""

from __future__ import annotations

from enum import Enum, auto, unique


@unique
class State(Enum):
    """Where a group stands; the values are what administration tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@unique
class Event(Enum):
    """What may happen to a group."""

    JOIN = auto()  # a new member
    REJOIN = auto()  # a member, with other protocols or metadata than before
    REPEAT = auto()  # a member that is not the leader, with nothing new
    REPEAT_LEADER = auto()  # the leader, with nothing new: it wants a rebalance
    REPLACE = auto()  # a static member under a new id; the protocol would stay the same
    REPLACE_CHANGED = auto()  # a static member under a new id; the protocol would change
    DEPART = auto()  # a member left, or its session ended
    LEAD = auto()  # the leader brings the assignment
    FOLLOW = auto()  # another member asks for its assignment
    HEARTBEAT = auto()
    COMMIT = auto()  # a member wants to move positions
    MANUAL = auto()  # somebody who is no member does
    JOINED = auto()  # everyone who is to join has
    NONE_LEFT = auto()  # the last member has gone
    JOIN_OVER = auto()  # the time to join is over
    SYNC_OVER = auto()  # the time to sync is over
    FORGET = auto()  # the broker needs the room
    DISSOLVE = auto()  # its members go on in a group of the other kind
    RESUME = auto()  # members come from a group of the other kind


@unique
class Action(Enum):
    """What a group does about it."""

    WAIT_FIRST = auto()  # wait a little for more members
    ALLOW_MANUAL = auto()  # let whoever commits while nobody is a member
    CLOSE = auto()  # let go of everything
    AWAIT_JOIN = auto()  # hold the answer until the rebalance is over
    DEPARTED = auto()  # see whether the others were waiting for the one who left
    REFUSE_REBALANCE = auto()  # ask the member to join again
    ALLOW = auto()  # note the sign of life
    REFUSE_MANUAL = auto()  # only members move the positions of a group that has members
    END_JOIN = auto()  # go on with those who have joined
    COMPLETE = auto()  # begin a generation: answer every join, the leader with all members
    EMPTY = auto()  # begin a generation of nobody
    BEGIN = auto()  # start a rebalance: interrupt syncs, wait for everyone to join
    ANSWER_JOIN = auto()  # tell the member again what it joined
    ASSIGN = auto()  # give everyone the leader's assignment
    AWAIT_ASSIGNMENT = auto()  # hold the answer until the leader has assigned
    DROP_UNSYNCED = auto()  # let go of who joined and did not sync, and start a rebalance
    ANSWER_REPLACED = auto()  # let a static member go on with its assignment
    ANSWER_ASSIGNMENT = auto()  # tell the member its assignment
    AWAIT_LIFE = auto()  # expect signs of life of everyone


TABLE: dict[tuple[State, Event], tuple[Action, State]] = {
    # nobody is here
    (State.EMPTY, Event.JOIN): (Action.WAIT_FIRST, State.PREPARING),
    (State.EMPTY, Event.MANUAL): (Action.ALLOW_MANUAL, State.EMPTY),
    (State.EMPTY, Event.FORGET): (Action.CLOSE, State.DEAD),
    (State.EMPTY, Event.RESUME): (Action.AWAIT_LIFE, State.STABLE),
    # waiting for everyone to join
    (State.PREPARING, Event.JOIN): (Action.AWAIT_JOIN, State.PREPARING),
    (State.PREPARING, Event.REJOIN): (Action.AWAIT_JOIN, State.PREPARING),
    (State.PREPARING, Event.REPEAT): (Action.AWAIT_JOIN, State.PREPARING),
    (State.PREPARING, Event.REPEAT_LEADER): (Action.AWAIT_JOIN, State.PREPARING),
    (State.PREPARING, Event.REPLACE): (Action.AWAIT_JOIN, State.PREPARING),
    (State.PREPARING, Event.REPLACE_CHANGED): (Action.AWAIT_JOIN, State.PREPARING),
    (State.PREPARING, Event.DEPART): (Action.DEPARTED, State.PREPARING),
    (State.PREPARING, Event.LEAD): (Action.REFUSE_REBALANCE, State.PREPARING),
    (State.PREPARING, Event.FOLLOW): (Action.REFUSE_REBALANCE, State.PREPARING),
    (State.PREPARING, Event.HEARTBEAT): (Action.REFUSE_REBALANCE, State.PREPARING),
    (State.PREPARING, Event.COMMIT): (Action.ALLOW, State.PREPARING),
    (State.PREPARING, Event.MANUAL): (Action.REFUSE_MANUAL, State.PREPARING),
    (State.PREPARING, Event.JOIN_OVER): (Action.END_JOIN, State.PREPARING),
    (State.PREPARING, Event.JOINED): (Action.COMPLETE, State.COMPLETING),
    (State.PREPARING, Event.NONE_LEFT): (Action.EMPTY, State.EMPTY),
    (State.PREPARING, Event.DISSOLVE): (Action.CLOSE, State.DEAD),
    # joined, waiting for the leader's assignment
    (State.COMPLETING, Event.JOIN): (Action.BEGIN, State.PREPARING),
    (State.COMPLETING, Event.REJOIN): (Action.BEGIN, State.PREPARING),
    (State.COMPLETING, Event.REPEAT): (Action.ANSWER_JOIN, State.COMPLETING),
    (State.COMPLETING, Event.REPEAT_LEADER): (Action.ANSWER_JOIN, State.COMPLETING),
    (State.COMPLETING, Event.REPLACE): (Action.BEGIN, State.PREPARING),
    (State.COMPLETING, Event.REPLACE_CHANGED): (Action.BEGIN, State.PREPARING),
    (State.COMPLETING, Event.DEPART): (Action.BEGIN, State.PREPARING),
    (State.COMPLETING, Event.LEAD): (Action.ASSIGN, State.STABLE),
    (State.COMPLETING, Event.FOLLOW): (Action.AWAIT_ASSIGNMENT, State.COMPLETING),
    (State.COMPLETING, Event.HEARTBEAT): (Action.ALLOW, State.COMPLETING),
    (State.COMPLETING, Event.COMMIT): (Action.REFUSE_REBALANCE, State.COMPLETING),
    (State.COMPLETING, Event.MANUAL): (Action.REFUSE_MANUAL, State.COMPLETING),
    (State.COMPLETING, Event.SYNC_OVER): (Action.DROP_UNSYNCED, State.PREPARING),
    (State.COMPLETING, Event.DISSOLVE): (Action.CLOSE, State.DEAD),
    # everyone has, or may fetch, an assignment
    (State.STABLE, Event.JOIN): (Action.BEGIN, State.PREPARING),
    (State.STABLE, Event.REJOIN): (Action.BEGIN, State.PREPARING),
    (State.STABLE, Event.REPEAT): (Action.ANSWER_JOIN, State.STABLE),
    (State.STABLE, Event.REPEAT_LEADER): (Action.BEGIN, State.PREPARING),
    (State.STABLE, Event.REPLACE): (Action.ANSWER_REPLACED, State.STABLE),
    (State.STABLE, Event.REPLACE_CHANGED): (Action.BEGIN, State.PREPARING),
    (State.STABLE, Event.DEPART): (Action.BEGIN, State.PREPARING),
    (State.STABLE, Event.LEAD): (Action.ANSWER_ASSIGNMENT, State.STABLE),
    (State.STABLE, Event.FOLLOW): (Action.ANSWER_ASSIGNMENT, State.STABLE),
    (State.STABLE, Event.HEARTBEAT): (Action.ALLOW, State.STABLE),
    (State.STABLE, Event.COMMIT): (Action.ALLOW, State.STABLE),
    (State.STABLE, Event.MANUAL): (Action.REFUSE_MANUAL, State.STABLE),
    (State.STABLE, Event.SYNC_OVER): (Action.DROP_UNSYNCED, State.PREPARING),
    (State.STABLE, Event.DISSOLVE): (Action.CLOSE, State.DEAD),
}
