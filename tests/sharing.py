"""How the tests are shared out to several processes (`pytest -n 2 --dist loadfile`).

A file stays whole, in one process: its tests share a server. The files that wait for programs of
others come first: they are the longest (minutes, with Spark), and the many quick ones after them
let the processes end together. What they must agree on, and their reports at the end, go
through here too.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import time
from pathlib import Path

import pytest

FULL = (
    "tests/attacks/",
    "tests/broker/cursors/test_position.py::test_a_hundred_thousand_holes_are_made_and_closed_quickly",
    "tests/broker/schemas/test_compatibility.py::test_comparing_costs_no_more",
    "tests/broker/schemas/test_protobuf_parser.py::test_a_parse_leaves_no_tree",
    "tests/broker/subscriptions/test_key_shared.py::test_consumers_of_a_crowded_ring",
    "tests/cli/test_cluster_ours.py::test_a_verb_loads_little",
    "tests/client/kafka/test_broken_steps.py",
    "tests/client/pulsar/test_fuzz.py",
    "tests/client/pulsar/test_real_server.py",
    "tests/client/tubemq/test_real_server.py",
    "tests/conformance/",
    "tests/crash/",
    "tests/deploy/",
    "tests/docs/test_examples.py",
    "tests/entry/compaction/test_compaction.py::test_arrow_reads_rewritten",
    "tests/entry/conversion/test_convert.py::test_many_headers_do_not",
    "tests/entry/kafka/test_record_batch.py::test_many_tiny_records",
    "tests/gateway/http/console/test_access.py::test_a_form_of_another_site",
    "tests/gateway/http/console/test_browser.py",
    "tests/gateway/http/console/test_large.py",
    "tests/gateway/http/pulsar/test_hostile.py",
    "tests/gateway/http/registry/test_avro.py::test_schemas_and_configuration_survive",
    "tests/gateway/http/registry/test_hostile.py",
    "tests/gateway/pulsar/test_adversity.py::test_total_metadata",
    "tests/gateway/test_closed_connections.py::test_nothing_refers",
    "tests/gateway/test_steps.py::test_a_tool_may_request",
    "tests/gateway/tubemq/test_held_gets.py::test_a_thousand_waiting",
    "tests/log/jobs/test_merge_plan.py::test_mixed_retention",
    "tests/log/jobs/test_merge_plan.py::test_thousands_of_small",
    "tests/log/jobs/test_merge_plan.py::test_a_trickle",
    "tests/log/jobs/test_merge_plan.py::test_under_load_a_byte",
    "tests/log/tail/test_chunks.py::test_memory_counts_until",
    "tests/log/test_fixtures.py::test_data_of_an_older_version_accepts_appends",
    "tests/log/test_missing_files.py",
    "tests/log/test_partition_memory.py",
    "tests/meta/test_port.py::test_postgres_does_what_memory_does",
    "tests/meta/test_postgres.py::test_a_commit_that_no_standby",
    "tests/meta/test_postgres.py::test_a_server_that_crashes",
    "tests/meta/test_postgres.py::test_a_server_without_fsync",
    "tests/meta/test_shared_journal.py",
    "tests/meta/test_slot_moves.py",
    "tests/node/background/test_merge.py",
    "tests/node/background/test_objects",
    "tests/node/backup/test_segments.py",
    "tests/node/backup/test_served.py",
    "tests/node/cluster/test_cluster.py",
    "tests/node/cluster/test_replication.py",
    "tests/node/cluster/test_securing.py",
    "tests/node/cluster/test_shared",
    "tests/node/cluster/test_slot_moves.py",
    "tests/node/supervisor/test_moves.py",
    "tests/node/supervisor/test_node_transactions.py",
    "tests/node/supervisor/test_nodes.py",
    "tests/node/supervisor/test_shared_se",
    "tests/node/supervisor/test_tubemq_nodes.py",
    "tests/node/test_committed_readers.py::test_a_client_with_read_committed_gets_what_was_committed[segments",
    "tests/node/test_review_full_meta.py",
    "tests/node/test_review_maintenance.py",
    "tests/node/test_secure.py",
    "tests/node/test_serve",
    "tests/security/fuzz/",
    "tests/security/test_bypass_kafka.py::test_each_refusal_is_one_line",
    "tests/security/test_audit_matrix.py::test_each_change_of_pulsars",
    "tests/security/test_bypass_kafka.py::test_no_answer_reveals",
    "tests/security/test_bypass_kafka.py::test_no_other_spelling",
    "tests/security/test_bypass_pulsar.py::test_no_other_spelling",
    "tests/security/test_own_",
    "tests/security/test_pulsar_login.py::test_wrong_credentials",
    "tests/security/test_secrets.py",
    "tests/security/test_users_cli.py",
    "tests/spark/payload/test_s",
    "tests/spark/pipelines/",
    "tests/spark/protocols/",
    "tests/spark/tables/",
    "tests/spark/test_micro_batches.py",
    "tests/spark/test_real_kafka.py",
    "tests/spark/test_s",
    "tests/spark/test_transactions.py",
    "tests/testing/test_embedded_broker.py::test_a_broker_that_stops_while",
    "tests/testing/test_examples.py",
    "tests/wire/kafka/codec/test_compile.py::test_every_message_comes_back",
    "tests/wire/kafka/test_hostile.py::test_a_message_that_is_cut_off_anywhere",
    "tests/wire/kafka/test_hostile.py::test_damaged_messages",
    "tests/wire/kafka/test_java.py",
    "tests/wire/kafka/test_kio.py",
)
"""Tests that `make test` leaves to `make test-all`: each client in each family, real servers, most
kills, what a served node does in all its variants, Spark."""
QUICK = (
    "tests/conformance/across/test_across.py",
    "tests/conformance/kafka/internal/test_internal.py::test_a_second_copy",
    "tests/conformance/kafka/test_delete_records.py",
    "tests/conformance/kafka/test_fetch.py",
    "tests/conformance/kafka/test_own_client.py",
    "tests/conformance/kafka/test_produce.py",
    "tests/conformance/kafka/test_replication.py",
    "tests/conformance/kafka/test_restart.py::test_a_group_member_goes_on_through_a_restart[trilogue-Confluent",
    "tests/conformance/kafka/test_restart.py::test_records_and_positions",
    "tests/conformance/pulsar/test_own_client.py",
    "tests/conformance/pulsar/test_python_producers.py",
    "tests/conformance/tubemq/test_own_client.py",
    "tests/conformance/tubemq/test_producers.py",
    "tests/crash/pulsar/test_tail.py",
    "tests/crash/disk/test_damage.py",
    "tests/crash/test_every_step.py::test_every_life",
    "tests/crash/test_every_step.py::test_stopped_at_some_steps_it_finds_everything[log",
    "tests/crash/test_every_step.py::test_stopped_at_some_steps_it_finds_everything[pulsar",
    "tests/crash/test_every_step.py::test_the_life",
    "tests/crash/test_faults.py::test_a_failed_write",
    "tests/crash/test_kill.py",
    "tests/crash/test_ledger.py",
    "tests/crash/tubemq/test_tail.py",
    "tests/docs/test_examples.py::test_examples_of_a_page_run[docs/how-to/use-the-kafka-client",
    "tests/docs/test_examples.py::test_examples_of_a_page_run[docs/tutorial/first-topic",
    "tests/node/background/test_merge.py::test_first_level_segments",
    "tests/node/background/test_merge.py::test_reading_and_writing",
    "tests/node/background/test_objects.py::test_an_object_is_removed",
    "tests/node/cluster/test_cluster.py::test_settings",
    "tests/node/supervisor/test_nodes.py::test_partitions_and_groups_are_spread",
    "tests/node/supervisor/test_shared_settings.py::test_a_login",
    "tests/node/test_secure.py::test_a_first_start_makes",
    "tests/node/test_secure.py::test_clients_work",
    "tests/node/test_serve.py::test_a_listener_that_others_reach_needs_insecure[kafka-0",
    "tests/node/test_serve.py::test_a_second_process",
    "tests/node/test_serve.py::test_a_signal_drains_and_loses_nothing[15",
    "tests/node/test_serve.py::test_a_taken_port_is_named[pulsar",
    "tests/node/test_serve.py::test_kill_minus_nine",
    "tests/node/test_serve.py::test_ready_file",
    "tests/node/test_serve_flush.py::test_a_kill_between_flushes_loses_nothing[0",
    "tests/node/test_serve_flush.py::test_flushed_messages",
    "tests/node/test_serve_merge.py::test_a_kill_beside_merges_loses_nothing[0",
    "tests/security/test_internal_listener.py::test_the_certificate",
    "tests/security/test_own_kafka_client.py::test_it_logs_in",
    "tests/security/test_own_pulsar_client.py::test_it_logs_in",
    "tests/security/test_pulsar_login.py::test_wrong_credentials_are_refused_with_one_line[0",
    "tests/security/test_pulsar_login.py::test_wrong_credentials_are_refused_with_one_line[1",
    "tests/security/test_pulsar_login.py::test_wrong_credentials_are_refused_with_one_line[6",
    "tests/security/test_users_cli.py::test_a_user_from",
    "tests/spark/protocols/test_pulsar_url.py::test_options",
    "tests/spark/protocols/test_pulsar_url.py::test_rows",
    "tests/spark/test_stream_reader.py",
)
"""Tests of these folders that stay in the quick run: some for each promise and protocol."""
VARIANTS = ("[trilogue-franz-go", "[trilogue-java", "[trilogue-kafkajs", "[trilogue-kcat",
            "[trilogue-sarama", "java_delete", "sigterm", "-kill]", "append_garbage")  # fmt: skip
"""Parameters that are full also there: clients in other languages, and the milder of two ends."""
RARE = (
    "tests/attacks/test_bombs.py",
    "tests/attacks/test_half_requests.py::test_half_requests_of_one_protocol[",
    "tests/attacks/test_members.py::test_streams_topologies[one group",
    "tests/attacks/test_transactions.py::test_open_transactions_without_end[partitions",
    "tests/attacks/test_unread.py::test_120_clients_of_one_protocol[get_",
    "tests/attacks/test_unread.py::test_120_clients_of_one_protocol[peek_",
    "tests/attacks/test_unread.py::test_120_clients_of_one_protocol[take_",
    "tests/client/pulsar/test_real_server.py",
    "tests/conformance/kafka/test_own_client.py::test_a_real_kafka_renews",
    "tests/conformance/kafka/programs/test_producer_identities.py::test_java_goes_on_with_another_producer_id[trilogue-alive",
    "tests/conformance/pulsar/test_node_transactions.py::test_messages_and_acks_on_all_nodes_end_with_their_transaction[go",
    "tests/conformance/pulsar/test_node_transactions.py::test_transactions_are_whole_while_each_node_is_killed[java",
    "tests/conformance/pulsar/test_restart.py::test_an_open_transaction_survives_kill9[trilogue-go",
    "tests/conformance/pulsar/test_restart.py::test_sequences_survive_for_de_duplication[trilogue-go",
    "tests/conformance/pulsar/test_restart.py::test_sequences_survive_for_de_duplication[trilogue-python",
    "tests/crash/cluster/test_take_over.py",
    "tests/crash/cluster/test_spread_slots.py::test_nothing_acked_is_lost_while_nodes_are_drained",
    "tests/crash/kafka/test_clock.py",
    "tests/crash/kafka/test_network.py",
    "tests/crash/kafka/test_old_sets_kill.py",
    "tests/crash/test_journal_tail.py",
    "tests/crash/test_kill_nodes.py::test_nothing_acked_is_lost_when_nodes_end_one_by_one[frozen",
    "tests/crash/test_move_slots.py",
    "tests/crash/transactions/test_all_clients.py::test_transactions_of_all_clients_over_nodes",
    "tests/crash/transactions/test_connect_kill.py",
    "tests/crash/transactions/test_kill_nodes.py",
    "tests/crash/transactions/test_pulsar_transactions_kill.py::test_messages_and_acks_are_whole_while_slots_move",
    "tests/crash/transactions/test_pulsar_transactions_kill.py::test_messages_and_acks_over_nodes",
    "tests/crash/transactions/test_streams_kill.py",
    "tests/crash/tubemq/test_hostile.py::test_stuck_peer_with_gets_for_many_groups",
    "tests/docs/test_examples.py::test_examples_of_a_page_with_spark_run[docs/",
    "tests/gateway/http/pulsar/test_hostile.py::test_hostile_bytes_are_answered_on_every_path",
    "tests/node/background/test_merge.py::test_merge_refused_by_meta_leaves_no_file[error1",
    "tests/node/background/test_merge.py::test_merges_that_fail_hold_nothing_up_and_are_tried_again[error1",
    "tests/node/background/test_merge.py::test_merges_that_fail_hold_nothing_up_and_are_tried_again[error2",
    "tests/node/backup/test_served.py::test_acknowledged_messages_are_in_a_backup_once_and_in_order[1",
    "tests/node/test_serve_flush.py::test_a_kill_between_flushes_loses_nothing[1",
    "tests/node/test_serve_flush.py::test_a_kill_between_flushes_loses_nothing[2",
    "tests/node/test_serve_flush.py::test_a_kill_between_flushes_loses_nothing[3",
    "tests/node/test_serve_merge.py::test_a_kill_beside_merges_loses_nothing[1",
    "tests/node/test_serve_objects.py::test_old_messages_are_read_from_objects_and_go_from_there[directory",
    "tests/security/test_kafka_logins.py::test_librdkafka_renews_its_session_on_its_connection[PLAIN",
    "tests/security/test_kafka_logins.py::test_librdkafka_renews_its_session_on_its_connection[SCRAM",
    "tests/spark/test_real_kafka.py",
)
RARE_VARIANTS = {
    "tests/conformance/": ("java-console-3.9.1", "java-3.9.1", "-sigterm]"),
    "tests/conformance/kafka/programs/test_delegation_tokens.py": ("[3.9.1",),
    "tests/conformance/kafka/programs/test_streams.py": ("[trilogue-3.9.1",),
    "tests/conformance/kafka/programs/test_tools.py": ("[trilogue-3.9.1",),
    "tests/conformance/kafka/programs/test_transaction_tools.py": ("[trilogue-3.9.1",),
    "tests/conformance/kafka/test_old_formats.py": ("java-0.11.0.3",),
    "tests/conformance/kafka/test_quotas.py": ("[trilogue-3.9.1",),
    "tests/conformance/pulsar/test_security.py": tuple(
        f"[{case}-go" for case in ("empty", "expired", "none", "other key", "user")
    ),
    "tests/crash/": ("sigterm", "-kill]"),
    "tests/wire/kafka/test_java.py": ("3.9.1",),
}
"""Tests of `make test-long` that are left out of `make test-all`: another release of a client, the
milder end of a process, and more kinds of one error, beside those that stay."""
MAY_MARK = re.compile(r"mark\.full|kafka\.instances import .*newest|sharing import seeds")
"""The text of a file with full tests that have this mark by themselves."""
LOADFILE = "loadfile"
LONG = "long"
TOGETHER = ("tests/spark",)  # one session of Spark for all its files
FIRST = ("docs", "spark", "crash", "attacks", "conformance", "node", "wire", "cli", "client",
         "demo", "http")  # fmt: skip
"""The rooms with the longest files, which start servers and foreign programs, in this order; then
all others."""
REPORTED = "reported"
SEED = "seed"


def seeds(count: int, *, quick: int) -> list[object]:
    """Seeds of a test, from 0; `make test` has the first ones."""
    rest = [pytest.param(each, marks=pytest.mark.full) for each in range(quick, count)]
    return [*range(quick), *rest]


def rank(path: Path) -> int:
    """Where a file stands in the queue."""
    return next((number for number, room in enumerate(FIRST) if room in path.parts), len(FIRST))


def is_full(item: pytest.Item) -> bool:
    """Whether a test belongs to `make test-all` only, by its place."""
    place = item.nodeid
    if not place.startswith(FULL):
        return False
    return not place.startswith(QUICK) or any(each in place for each in VARIANTS)


def is_rare(item: pytest.Item) -> bool:
    """Whether a test belongs to `make test-long` only, by its place."""
    place = item.nodeid
    return place.startswith(RARE) or any(
        place.startswith(folder) and any(each in place for each in variants)
        for folder, variants in RARE_VARIANTS.items()
    )


def has_tests_of(place: str, listed: tuple[str, ...]) -> bool:
    """Whether a list has a file, the folder of it, or a test in it."""
    return place.startswith(listed) or any(each.startswith(place) for each in listed)


def is_left_out(config: pytest.Config, path: Path) -> bool:
    """Whether a whole run would import this file for nothing, since it runs none of its tests.

    A file that the command line names is always collected.
    """
    if not path.match("test_*.py") or config.args != config.getini("testpaths"):
        return False
    place = path.relative_to(config.rootpath).as_posix()
    named = config.getoption("markexpr")
    if not named:
        return place.startswith(FULL) and not has_tests_of(place, QUICK)
    has_full = has_tests_of(place, FULL) or MAY_MARK.search(path.read_text())
    return named == "full" and not has_full


def is_function_left_out(collector: pytest.Collector, name: str) -> bool:
    """Whether a whole run has none of the tests of a function, which need not be made."""
    config, place = collector.config, f"{collector.nodeid}::{name}"
    if config.args != config.getini("testpaths") or LONG in (named := config.getoption("markexpr")):
        return False
    is_never_quick = place.startswith(FULL) and not has_tests_of(place, QUICK)
    return place.startswith(RARE) or (not named and is_never_quick)


def import_share(config: pytest.Config) -> None:
    """In a process of several: imports its share of the test files before it collects all of them.

    pytest rewrites the assertions of each file that it has not seen before, 40 s of CPU for all,
    and keeps the result in `__pycache__`, where the other processes find it.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    paths = sorted((config.rootpath / "tests").rglob("test_*.py"))
    paths = [each for each in paths if not is_left_out(config, each)]
    for path in paths[len(paths) * number // count : len(paths) * (number + 1) // count]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # reported when it is collected
            importlib.import_module(
                ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
            )


def put_in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run in one process alone the order stays that of chance."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.path))


def seed_of_the_run(config: pytest.Config) -> int:
    """TRILOGUE_SEED repeats the chance that crash tests take; all processes have the same."""
    given = getattr(config, "workerinput", {}).get(SEED) or os.environ.get("TRILOGUE_SEED")
    return int(given or time.time_ns() % 1_000_000)


def report(item: pytest.Item, text: object) -> None:
    """A line for the end of the run, from whichever process."""
    item.user_properties.append((REPORTED, str(text)))


def reported_lines(reporter: pytest.TerminalReporter) -> list[str]:
    """The reported lines of all tests, in the order in which the tests ended."""
    reports = [each for kind in ("", "error") for each in reporter.getreports(kind)]
    return [
        text
        for report in reports
        if getattr(report, "when", "") == "teardown"
        for kind, text in report.user_properties
        if kind == REPORTED
    ]


def scheduler(config: pytest.Config, log: object) -> object | None:
    """xdist's own for whole files, but in our order, and with folders that stay together."""
    if config.getoption("dist") != LOADFILE:
        return None
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path: str = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if path.startswith(folder)), path)

    config.option.loadscopereorder = False  # not by number of tests
    return Sharing(config, log)
