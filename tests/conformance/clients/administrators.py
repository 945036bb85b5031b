"""Every client as an administrator: the verbs of driven.py in the words of each Python library.

    for client in able("delete_records"):
        client.request("delete_records", address, topic=topic, before={"0": 3})

| verb | words | answer |
|---|---|---|
| topics | | names |
| partitions | topic | how many |
| create, grow | topic, partitions; create also configs | |
| delete | topic | |
| configs | resource (topic, broker), name | name -> {value, ...} |
| alter | resource, name, values, without | |
| offsets | topic, at (earliest, latest, a time in ms) | partition -> offset |
| newest | topic, partition | offset of the record with the largest time |
| epoch_end | topic, partition | where the leader's epoch ends: the end of the log |
| delete_records | topic, before: partition -> offset | partition -> first offset left |
| cluster | | {id, controller, nodes: [[id, host, port]]} |
| log_dirs | node | path -> {topic-partition -> bytes} |
| groups | | name -> state, None where the client does not report it |
| describe_group | group | {state, protocol, members: [{id, client, partitions}]} |
| group_offsets | group | topic -> {partition -> offset} |
| alter_group_offsets | group, topic, offsets: partition -> offset | |
| delete_group_offsets | group, topic, partition | |
| delete_group | group | |
| producers | topic, partition | [{id, epoch, sequence, open_from}] |
| transactions; describe_transaction | ; transaction | name -> state; state |
| quotas; set_quota | ; client, key, value (None takes it away) | client -> {key -> value} |
| scram_users; set_scram, delete_scram | ; client | user -> its mechanisms, by number |
| elect | topic, partition | the error's name, None, or an exception: as the client has it |
| reassign; reassignments | topic, partition, nodes; | ; topic-partition -> nodes |
"""

from __future__ import annotations

import re
from typing import Protocol

import pytest

from tests.conformance.clients.aio_admin import AiokafkaAdmin
from tests.conformance.clients.confluent_admin import ConfluentAdmin
from tests.conformance.clients.in_python import InPython
from tests.conformance.clients.kafka_programs import PROGRAMS
from tests.conformance.clients.kafka_python_admin import KafkaPythonAdmin
from tests.conformance.clients.kcat import Kcat


class Administrator(Protocol):
    """A client with verbs; `verbs` names those that it has words for."""

    name: str
    verbs: frozenset[str]

    def request(self, verb: str, address: str = "", **words: object) -> object: ...


class KcatAdmin(InPython):
    """kcat: it lists, and finds offsets by time."""

    name = "kcat"

    def topics(self, address: str) -> list[str]:
        return re.findall(r'topic "([^"]+)" with', Kcat().run("-L", "-b", address))

    def partitions(self, address: str, topic: str) -> int:
        listed = Kcat().run("-L", "-b", address, "-t", topic)
        found = re.search(rf'topic "{re.escape(topic)}" with (\d+) partitions:\n', listed)
        assert found, listed
        return int(found[1])

    def offsets(self, address: str, topic: str, at: str) -> dict[int, int]:
        time = {"earliest": "-2", "latest": "-1"}.get(at, at)
        places = [f"{topic}:{each}:{time}" for each in range(self.partitions(address, topic))]
        output = Kcat().run("-Q", "-b", address, *(word for at in places for word in ("-t", at)))
        return {
            int(n): int(offset) for n, offset in re.findall(r"\[(\d+)\] offset (-?\d+)", output)
        }


CONFLUENT, AIOKAFKA = ConfluentAdmin(), AiokafkaAdmin()
KAFKA_PYTHON, KCAT = KafkaPythonAdmin(), KcatAdmin()
ADMINISTRATORS: list[Administrator] = [CONFLUENT, AIOKAFKA, KAFKA_PYTHON, KCAT, *PROGRAMS]


def able(*verbs: str) -> list[object]:
    """Those who have words for all of them, as test parameters; Java is marked."""
    return [
        pytest.param(
            each, id=each.name, marks=[pytest.mark.java] if each.name.startswith("java") else []
        )
        for each in ADMINISTRATORS
        if each.verbs.issuperset(verbs)
    ]
