"""What a test needs from outside, and what happens where it is missing.

A test that needs `strace` calls `require_program("strace")`: it is skipped with that reason where
there is none, and fails where TRILOGUE_REQUIRE names it (or is `all`, as .ci/run does): a check
that silently never ran is worse than none.
"""

from __future__ import annotations

import os
import shutil

import pytest
from tools.servers.kafka import have_jars
from tools.servers.network import may_have_one
from tools.servers.pulsar import VERSION as PULSAR_VERSION
from tools.servers.pulsar import have_jars as have_pulsar_jars
from tools.servers.tubemq import VERSION as TUBEMQ_VERSION
from tools.servers.tubemq import have_jars as have_tubemq_jars

ALL = "all"


def require(what: str, *, found: object) -> None:
    """Go on when `found`; else skip, or fail where the environment insists on `what`."""
    if found:
        return
    wanted = os.environ.get("TRILOGUE_REQUIRE", "").split(",")
    if ALL in wanted or what in wanted:
        pytest.fail(f"TRILOGUE_REQUIRE wants {what}, which is missing here")
    pytest.skip(f"needs {what}")


def require_program(name: str) -> None:
    require(name, found=shutil.which(name))


def require_jars(version: str) -> None:
    """Java and the jars of one Kafka version (`make jars`)."""
    require_program("java")
    require(f"kafka-{version}", found=have_jars(version))


def require_pulsar_jars(version: str = PULSAR_VERSION) -> None:
    """Java and the jars of one Pulsar version (`make jars`)."""
    require_program("java")
    require(f"pulsar-{version}", found=have_pulsar_jars(version))


def require_tubemq_jars(version: str = TUBEMQ_VERSION) -> None:
    """Java and the jars of TubeMQ: the server's class path holds the client (`make jars`)."""
    require_program("java")
    require(f"tubemq-{version}", found=have_tubemq_jars(version))


def require_real_tubemq() -> None:
    """It listens on all addresses, so it wants a network of its own, which wants root."""
    require_tubemq_jars()
    require("root", found=may_have_one())


def require_root() -> None:
    """Mounts and fault injection into other processes want it; a container may not have it."""
    require("root", found=os.geteuid() == 0)
