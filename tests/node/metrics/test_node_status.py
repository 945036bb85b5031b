"""What `trilogue nodes describe` makes of the figures of nodes."""

from __future__ import annotations

import pytest

from trilogue.cli.node_status import find_lost_slots, print_status
from trilogue.gateway.telemetry.request_latency import LatencyHistogram
from trilogue.node.metrics.node_status import find_quantile


def test_the_bound_that_99_of_100_commits_do_not_exceed():
    histogram = LatencyHistogram((0.001, 0.002, 0.005))
    assert find_quantile(histogram) == 0.0
    for _ in range(99):
        histogram.observe(0.0015)
    histogram.observe(9.0)
    assert find_quantile(histogram) == 0.002
    histogram.observe(9.0)
    assert find_quantile(histogram) == 0.005


def test_a_node_that_does_not_answer_hides_no_other(capsys: pytest.CaptureFixture[str]):
    status = [
        {"id": 1, "kafka": "one:9092", "problem": "", "slots": [0, 2], "cluster_slots": 4},
        {"id": 2, "kafka": "two:9092", "problem": "no answer"},
        {"id": 3, "kafka": "three:9092", "problem": "", "slots": []},  # of an older version
    ]
    assert find_lost_slots(status) == [1, 3]

    print_status(status, as_json=False)

    assert capsys.readouterr().out.splitlines() == [
        "id  slots",
        " 1  0,2",
        " 2  -",
        " 3  -",
        "node 2 at two:9092: no answer",
        "no node that answers has the slots 1,3",
    ]
