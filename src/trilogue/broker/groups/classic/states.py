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
class GroupState(Enum):
    """Where a group stands; the values are what administration tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@unique
class GroupEvent(Enum):
    """What may happen to a group."""

    JOIN = auto()  # a new member
    REJOIN = auto()  # a member, with other protocols or metadata than before
    REPEAT = auto()  # a member that is not the leader, with nothing new
    REPEAT_LEADER = auto()  # the leader, with nothing new: it wants a rebalance
    REPLACE = auto()  # a static member under a new id; the protocol would stay the same
    REPLACE_CHANGED = auto()  # a static member under a new id; the protocol would change
    DEPART = auto()  # a member left, or its session ended
    LEAD = auto()  # the leader brings the assignment
    FOLLOW = auto()  # another member requests its assignment
    HEARTBEAT = auto()
    COMMIT = auto()  # a member wants to move positions
    MANUAL = auto()  # a client that is no member does
    JOINED = auto()  # everyone who is to join has
    NONE_LEFT = auto()  # the last member has gone
    JOIN_OVER = auto()  # the time to join is over
    SYNC_OVER = auto()  # the time to sync is over
    FORGET = auto()  # the broker needs the room
    DISSOLVE = auto()  # its members go on in a group of the other kind
    RESUME = auto()  # members come from a group of the other kind


@unique
class GroupAction(Enum):
    """What a group does about it."""

    WAIT_FIRST = auto()  # wait a little for more members
    ALLOW_MANUAL = auto()  # allow a commit while the group is empty
    CLOSE = auto()  # let go of everything
    AWAIT_JOIN = auto()  # hold the answer until the rebalance is over
    DEPARTED = auto()  # see whether the others were waiting for the one who left
    REFUSE_REBALANCE = auto()  # make the member join again
    ALLOW = auto()  # note the sign of life
    REFUSE_MANUAL = auto()  # only members move the positions of a group that has members
    END_JOIN = auto()  # go on with those who have joined
    COMPLETE = auto()  # begin a generation: answer every join, the leader with all members
    EMPTY = auto()  # begin a generation without members
    BEGIN = auto()  # start a rebalance: interrupt syncs, wait for everyone to join
    ANSWER_JOIN = auto()  # repeat the response to the member's join
    ASSIGN = auto()  # give everyone the leader's assignment
    AWAIT_ASSIGNMENT = auto()  # hold the answer until the leader has assigned
    DROP_UNSYNCED = auto()  # let go of who joined and did not sync, and start a rebalance
    ANSWER_REPLACED = auto()  # let a static member go on with its assignment
    ANSWER_ASSIGNMENT = auto()  # send the member its assignment
    AWAIT_LIFE = auto()  # expect signs of life of everyone


_ROWS: dict[GroupState, dict[GroupEvent, tuple[GroupAction, GroupState]]] = {
    GroupState.EMPTY: {  # without members
        GroupEvent.JOIN: (GroupAction.WAIT_FIRST, GroupState.PREPARING),
        GroupEvent.MANUAL: (GroupAction.ALLOW_MANUAL, GroupState.EMPTY),
        GroupEvent.FORGET: (GroupAction.CLOSE, GroupState.DEAD),
        GroupEvent.RESUME: (GroupAction.AWAIT_LIFE, GroupState.STABLE),
    },
    GroupState.PREPARING: {  # waiting for everyone to join
        GroupEvent.JOIN: (GroupAction.AWAIT_JOIN, GroupState.PREPARING),
        GroupEvent.REJOIN: (GroupAction.AWAIT_JOIN, GroupState.PREPARING),
        GroupEvent.REPEAT: (GroupAction.AWAIT_JOIN, GroupState.PREPARING),
        GroupEvent.REPEAT_LEADER: (GroupAction.AWAIT_JOIN, GroupState.PREPARING),
        GroupEvent.REPLACE: (GroupAction.AWAIT_JOIN, GroupState.PREPARING),
        GroupEvent.REPLACE_CHANGED: (GroupAction.AWAIT_JOIN, GroupState.PREPARING),
        GroupEvent.DEPART: (GroupAction.DEPARTED, GroupState.PREPARING),
        GroupEvent.LEAD: (GroupAction.REFUSE_REBALANCE, GroupState.PREPARING),
        GroupEvent.FOLLOW: (GroupAction.REFUSE_REBALANCE, GroupState.PREPARING),
        GroupEvent.HEARTBEAT: (GroupAction.REFUSE_REBALANCE, GroupState.PREPARING),
        GroupEvent.COMMIT: (GroupAction.ALLOW, GroupState.PREPARING),
        GroupEvent.MANUAL: (GroupAction.REFUSE_MANUAL, GroupState.PREPARING),
        GroupEvent.JOIN_OVER: (GroupAction.END_JOIN, GroupState.PREPARING),
        GroupEvent.JOINED: (GroupAction.COMPLETE, GroupState.COMPLETING),
        GroupEvent.NONE_LEFT: (GroupAction.EMPTY, GroupState.EMPTY),
        GroupEvent.DISSOLVE: (GroupAction.CLOSE, GroupState.DEAD),
    },
    GroupState.COMPLETING: {  # joined, waiting for the leader's assignment
        GroupEvent.JOIN: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.REJOIN: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.REPEAT: (GroupAction.ANSWER_JOIN, GroupState.COMPLETING),
        GroupEvent.REPEAT_LEADER: (GroupAction.ANSWER_JOIN, GroupState.COMPLETING),
        GroupEvent.REPLACE: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.REPLACE_CHANGED: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.DEPART: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.LEAD: (GroupAction.ASSIGN, GroupState.STABLE),
        GroupEvent.FOLLOW: (GroupAction.AWAIT_ASSIGNMENT, GroupState.COMPLETING),
        GroupEvent.HEARTBEAT: (GroupAction.ALLOW, GroupState.COMPLETING),
        GroupEvent.COMMIT: (GroupAction.REFUSE_REBALANCE, GroupState.COMPLETING),
        GroupEvent.MANUAL: (GroupAction.REFUSE_MANUAL, GroupState.COMPLETING),
        GroupEvent.SYNC_OVER: (GroupAction.DROP_UNSYNCED, GroupState.PREPARING),
        GroupEvent.DISSOLVE: (GroupAction.CLOSE, GroupState.DEAD),
    },
    GroupState.STABLE: {  # everyone has, or may fetch, an assignment
        GroupEvent.JOIN: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.REJOIN: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.REPEAT: (GroupAction.ANSWER_JOIN, GroupState.STABLE),
        GroupEvent.REPEAT_LEADER: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.REPLACE: (GroupAction.ANSWER_REPLACED, GroupState.STABLE),
        GroupEvent.REPLACE_CHANGED: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.DEPART: (GroupAction.BEGIN, GroupState.PREPARING),
        GroupEvent.LEAD: (GroupAction.ANSWER_ASSIGNMENT, GroupState.STABLE),
        GroupEvent.FOLLOW: (GroupAction.ANSWER_ASSIGNMENT, GroupState.STABLE),
        GroupEvent.HEARTBEAT: (GroupAction.ALLOW, GroupState.STABLE),
        GroupEvent.COMMIT: (GroupAction.ALLOW, GroupState.STABLE),
        GroupEvent.MANUAL: (GroupAction.REFUSE_MANUAL, GroupState.STABLE),
        GroupEvent.SYNC_OVER: (GroupAction.DROP_UNSYNCED, GroupState.PREPARING),
        GroupEvent.DISSOLVE: (GroupAction.CLOSE, GroupState.DEAD),
    },
}

TRANSITIONS: dict[tuple[GroupState, GroupEvent], tuple[GroupAction, GroupState]] = {
    (state, event): row for state, rows in _ROWS.items() for event, row in rows.items()
}
