"""What a node does with segments in the background: flush, retention, deletion."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.log.model_machine import SEEDS, TROUBLE, WHICH, Trouble
from tests.log.model_node import GRACE_S
from tests.log.model_reading import WHERE, ReadingMachine

IN_HELPER = st.builds(Trouble, st.just("helper"), st.integers(0, 8))


class WorkingMachine(ReadingMachine):
    """Everything together."""

    @precondition(lambda self: self.node.log.sealed)
    @rule(trouble=TROUBLE | IN_HELPER, seed=SEEDS)
    def flush(self, trouble: Trouble, seed: int) -> None:
        self.attempt(self.node.flush, trouble, seed)

    @rule()
    def settle(self) -> None:
        """With everything in segments and no view of it left, the tails take no memory."""
        node = self.node

        def action() -> None:
            node.loop.pass_time(1)
            node.loop.run()
            node.log.seal()
            while node.log.sealed:
                node.flush()
            node.loop.work()

        if self.attempt(action):
            self.held.clear()
            self.notice()
            assert not self.model.hoped
            assert node.log.tail_bytes == 0
            assert node.log.tail_entries == 0
            assert not node.log.under_pressure

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, where=WHERE, trouble=TROUBLE, seed=SEEDS)
    def delete_records(self, which: int, where: float, trouble: Trouble, seed: int) -> None:
        """The start moves to any offset below the end; meta knows it first."""
        partition_id = self.pick(which)
        part = self.model.parts[partition_id]
        start = part.start + round(where * (part.end - part.start) / 2)
        self.start_at({partition_id: start}, trouble, seed)

    def start_at(self, starts: dict[int, int], trouble: Trouble, seed: int) -> None:
        self.wanted_starts.update(starts)

        def action() -> None:
            self.node.retain(starts)
            self.follow_meta()

        self.attempt(action, trouble, seed)

    @rule(trouble=TROUBLE, seed=SEEDS)
    def remove_retired_files(self, trouble: Trouble, seed: int) -> None:
        """The grace period is over: plans from before it are."""

        def action() -> None:
            self.node.loop.pass_time(GRACE_S + 1)
            self.node.loop.run()
            self.node.remove_retired()

        self.plans.clear()
        self.attempt(action, trouble, seed)

    def teardown(self) -> None:
        self.node.fs.kill()
        self.open()
        self.inspect_segments()
