"""Settings of access control at the TubeMQ listeners: those that cannot work are refused."""

from __future__ import annotations

import json

import pytest

from tests.server import launch_server, run_trilogue
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import SettingsError


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["tubemq.users=/u", "access.users-file=/v"], "the same thing"),
        (["tubemq.authorize=producers"], "not authenticated"),
        (
            ["tubemq.users=/u", "tubemq.authenticate=producers", "tubemq.authorize=both"],
            "not authenticated",
        ),
        (["tubemq.authenticate=some"], "off, producers, consumers, both"),
        (["tubemq.web-token=short"], "at least 8"),
        (["tubemq.web-token=a\nb\nc\nd\ne\nf"], "can be seen"),
    ],
)
def test_inconsistent_tubemq_access_settings_are_refused(assignments, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(environment={}, assignments=assignments)


def test_consistent_tubemq_access_settings_are_accepted():
    settings = load_settings(
        environment={},
        assignments=["tubemq.users=/u", "tubemq.authenticate=both", "tubemq.authorize=consumers"],
    )

    assert settings.text("tubemq.authorize") == "consumers"


def test_tubemq_authorization_follows_from_access_authenticate():
    assignments = ["access.authenticate=true", "tubemq.authorize=both"]

    assert load_settings(environment={}, assignments=assignments).switch("access.authenticate")


def test_the_token_of_the_web_api_is_not_shown():
    command = ["config", "--set", "tubemq.web-token=a secret of mine"]

    for more in ([], ["--json"]):
        shown = run_trilogue(*command, *more).stdout
        assert "a secret of mine" not in shown
        assert "(secret)" in shown
    assert json.loads(shown)["tubemq.users"]["value"] in {None, ""}


@pytest.mark.parametrize("key", ["tubemq.users", "access.users-file"])
@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_server_with_users_that_others_may_read_does_not_start(tmp_path, mode, key):
    users = tmp_path / "users"
    if mode is not None:
        users.write_text("alice:wonder\n")
        users.chmod(mode)
    settings = {"tubemq.authenticate": "both", key: users}

    server = launch_server(tmp_path / "data", settings=settings)

    assert server.wait() == 2
    assert key in server.output
