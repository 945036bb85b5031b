"""TubeMQ's web API as a whole: the responses of a real master and broker, tokens, pages, limits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.gateway.http.tubemq.web_api_client import ADMIN, Web
from tests.server import start_server
from trilogue.broker.access.authorizer import Operation
from trilogue.gateway.http.tubemq.routes import AT_BROKER, NOT_SERVED, TABLE

VECTORS = Path(__file__).parents[3] / "vectors" / "tubemq" / "webapi.json"


def test_it_answers_as_a_real_master_and_broker_did(tmp_path):
    """The requests of an administrator, recorded with a real 2.4.0 (the vectors)."""
    data = tmp_path / "data"
    different = []
    with start_server(data) as server:
        web = Web(server, data)
        for row in json.loads(VECTORS.read_text()):
            params = row["params"]
            if params.get("confModAuthToken") == "abc":
                params["confModAuthToken"] = web.token
            how = {"params": params} if row["how"] == "GET" else {"data": params}
            answer = web.client.request(row["how"], row["path"], **how).json()
            found = {key: answer[key] for key in ("result", "errCode")}
            expected = {key: row[key] for key in ("result", "errCode")}
            result = answer.get("data") or answer.get("dataSet") or []
            if "each" in row:
                expected["each"] = row["each"]
                found["each"] = [each["errCode"] for each in result]
            if "first" in row and result:
                expected["first"], found["first"] = row["first"], sorted(result[0])
            expected["keys"], found["keys"] = row["keys"], sorted(answer)
            if (found != expected) != ("differs" in row):
                different.append((params, found, expected))
        web.client.close()

    assert different == []


# -- the table


def test_every_method_has_an_operation():
    assert all(isinstance(row.operation, Operation) for row in TABLE.values())
    reading = {Operation.DESCRIBE, Operation.DESCRIBE_SETTINGS}
    for row in [*TABLE.values(), *AT_BROKER.values()]:
        assert row.changes == (row.operation not in reading), row.name
        assert row.changes == (not re.match("admin_(query|get)_", row.name)), row.name


def test_methods_are_named_and_those_that_change_need_the_token(web):
    result = {each["method"]: each["needAuth"] for each in web("admin_get_methods")["data"]}

    assert result == {row.name: row.changes for row in TABLE.values()}


@pytest.mark.parametrize("name", NOT_SERVED)
def test_unserved_method_returns_the_reason(web, name):
    response = web.client.get("/webapi.htm", params={"method": name}).json()

    assert (response["result"], response["errCode"]) == (False, 400)
    assert NOT_SERVED[name] in response["errMsg"]
    assert name not in TABLE


# -- who may change anything


@pytest.mark.parametrize("token", [None, "", "wrong", "ä"])
def test_no_change_without_the_token(web, token):
    params = {"method": "admin_offline_broker_configure", "brokerId": "1", **ADMIN}
    if token is not None:
        params["confModAuthToken"] = token

    response = web.client.get("/webapi.htm", params=params).json()

    assert (response["result"], response["errCode"]) == (False, 400)
    assert web("admin_query_broker_configure")["data"][0]["manageStatus"] == "online"


@pytest.mark.parametrize("header", [{"origin": "http://evil"}, {"sec-fetch-site": "cross-site"}])
@pytest.mark.parametrize("how", ["GET", "POST"])
def test_no_page_in_a_browser_changes_anything_though_it_knows_the_token(web, header, how):
    params = {
        "method": "admin_offline_broker_configure",
        "brokerId": "1",
        "confModAuthToken": web.token,
        **ADMIN,
    }

    response = web.client.request(how, "/webapi.htm", params=params, headers=header)

    assert response.status_code == 403
    assert web("admin_query_broker_configure")["data"][0]["manageStatus"] == "online"


def test_change_requires_a_user(web):
    response = web("admin_online_broker_configure", brokerId=1, modifyUser="", createUser="")

    assert response["errMsg"] == "Parameter createUser is missing or value is blank!"


def test_the_token_is_the_owners_and_stays(tmp_path):
    data = tmp_path / "data"
    file = data / "tubemq-web-token"
    with start_server(data):
        token = file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    with start_server(data):
        assert file.read_text() == token
    with start_server(data, settings={"tubemq.web-token": "a token of mine"}) as server:
        assert not file.exists()
        response = httpx.get(
            f"http://{server.doors['http']}/webapi.htm",
            params={
                "method": "admin_reload_broker_configure",
                "brokerId": "1",
                "confModAuthToken": "a token of mine",
                **ADMIN,
            },
        ).json()
        assert response["result"]


# -- what is no request


def test_a_form_may_hold_the_parameters(web):
    response = web.client.post("/webapi.htm", data={"method": "admin_query_server_version"}).json()

    assert response["data"][0]["version"].startswith("Trilogue")


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        ({"method": "PUT"}, 405),
        ({"method": "POST", "content": b"{}", "headers": {"content-type": "text/json"}}, 415),
        ({"method": "POST", "content": b"x" * ((1 << 20) + 1)}, 413),
        ({"method": "GET", "params": {str(number): "" for number in range(201)}}, 400),
    ],
)
def test_malformed_request_has_an_http_error_status(web, request_of, status):
    response = web.client.request(url="/webapi.htm", **request_of)

    assert response.status_code == status
    assert response.json()["result"] is False


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"topicName": "a:b"}, "illegal value for topicName"),
        ({"topicName": ",".join(map(str, range(1_001)))}, "at most 1000"),
        ({"brokerId": "x"}, "only contain numbers"),
        ({"brokerId": "1" * 20}, "only contain numbers"),
        ({"topicStatusId": "3"}, "value must <= 2"),
        ({"topicStatusId": "-1"}, "value must >= 0"),
        ({"withGroupAuthInfo": "maybe"}, "true or false"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(web, params, message):
    response = web("admin_query_topic_deploy_info", **params)

    assert (response["result"], response["errCode"]) == (False, 400)
    assert message in response["errMsg"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (
            "admin_add_new_topic_record",
            {
                "brokerId": ",".join(map(str, range(2, 103))),
                "topicName": ",".join(f"t{number}" for number in range(100)),
            },
        ),
        (
            "admin_bath_add_new_topic_record",
            {
                "topicJsonSet": json.dumps(
                    [{"brokerId": 2, "topicName": ",".join(map(str, range(1_000)))}] * 11
                )
            },
        ),
    ],
)
def test_a_request_is_not_about_all_pairs_of_long_lists(web, method, params):
    """A million pairs once blocked all other requests for six seconds."""
    form = {"method": method, "confModAuthToken": web.token, **ADMIN, **params}

    response = web.client.post("/webapi.htm", data=form).json()

    assert (response["result"], response["errCode"]) == (False, 400)
    assert "at most 10000" in response["errMsg"]


@pytest.mark.parametrize(
    "text", ["x", "{}", "[]", "[1]", json.dumps([{"topicName": "t"}] * 1_001), "[" * 100_000]
)
def test_a_json_array_that_is_none_is_refused(web, text):
    params = {
        "method": "admin_bath_add_new_topic_record",
        "topicJsonSet": text,
        "confModAuthToken": web.token,
        **ADMIN,
    }

    response = web.client.post("/webapi.htm", data=params).json()

    assert (response["result"], response["errCode"]) == (False, 400)


def test_metrics_and_health_are_where_they_were(web):
    assert web.client.get("/healthz").status_code == 200
    assert web.client.get("/admin/v2/clusters").status_code == 200
    assert web.client.get("/webapi.html").status_code == 404
