"""Every exception of the rooms below has a TubeMQ code: no class may be missing in the table."""

from __future__ import annotations

import pytest

from tests.gateway.pulsar.test_errors import EVERY
from trilogue.broker import errors as broker
from trilogue.entry.tubemq.tubemq_entry import WrongChecksum
from trilogue.gateway.tubemq.errors import CODES, EXPECTED, TubeRequestError, code_of
from trilogue.log.errors import DiskFull
from trilogue.wire.tubemq.errors import TubeCode


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_has_its_own_code_or_that_of_a_specific_base(kind):
    known = next(base for base in kind.__mro__ if base in CODES)

    assert known is not broker.BrokerError or kind is broker.BrokerError
    assert isinstance(CODES[known], TubeCode)
    assert CODES[known] is not TubeCode.SUCCESS


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (WrongChecksum(1, 2), TubeCode.FORBIDDEN),
        (DiskFull(), TubeCode.SERVICE_UNAVAILABLE),
        (broker.UnknownTopic(), TubeCode.FORBIDDEN),
        (broker.AuthenticationFailed(), TubeCode.CERTIFICATE_FAILURE),
        (TubeRequestError(TubeCode.NO_NODE, "no"), TubeCode.NO_NODE),
        (ValueError(), TubeCode.INTERNAL_ERROR),
    ],
)
def test_errors_have_codes_that_clients_handle(problem, code):
    assert code_of(problem) is code


def test_expected_exceptions_cover_the_error_table():
    assert all(any(issubclass(kind, root) for root in EXPECTED) for kind in CODES)
