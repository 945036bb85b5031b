"""Exports of a package are complete, and loaded on first use."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

PACKAGES = ("trilogue.client.kafka", "trilogue.client.kafka.admin", "trilogue.testing")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_lazy_name_of_a_package_resolves(package):
    module = importlib.import_module(package)

    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


def test_unknown_name_of_a_package_raises_attribute_error():
    module = importlib.import_module(PACKAGES[0])

    with pytest.raises(AttributeError, match="no attribute 'Postman'"):
        _ = module.Postman


def test_client_import_loads_neither_producer_nor_consumer():
    program = (
        "import sys, trilogue.client.kafka.client, trilogue.client.kafka.admin.topics;"
        "print([name for name in sys.modules if name.startswith('trilogue.client.kafka.')"
        " and name.endswith(('producer.producer', 'consumer.consumer', 'admin.admin'))])"
    )

    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert output.stdout == "[]\n"


def test_a_start_of_pytest_loads_no_broker():
    program = (
        "import sys, trilogue.testing.plugin;"
        "print([name for name in sys.modules if name.startswith('trilogue.')"
        " and not name.startswith(('trilogue.testing', 'trilogue.client'))])"
    )

    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert output.stdout == "[]\n"
