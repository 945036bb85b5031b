"""The Helm chart: what Helm renders, and the commands of its pods, run as a container runs them."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from tests.conformance.clients.building import BUILD, built, go, require_go
from tests.conformance.clients.building import run as build_run
from tests.postgres import PostgresServer, running_postgres
from tests.server import Server, clean_environment
from tests.waiting import wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "trilogue"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
PORTS = (
    "kafka", "kafkaSaslSsl", "pulsar", "pulsarSsl", "tubemqMaster", "tubemqMasterSsl",
    "tubemqBroker", "tubemqBrokerSsl", "http", "https",
)  # fmt: skip
KUBERNETES = "--kube-version=1.30.0"  # without its makefile Helm takes an old one
FREE_PORTS = [f"--set=ports.{name}=0" for name in PORTS]
CLUSTER = ["--set=cluster.enabled=true", "--set=cluster.existingSecret=database"]
BUCKET = "--set=objects.url=s3://bucket/trilogue"

HEALTH_S = 60

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def helm() -> Path:
    require_go((1, 24))
    target = BUILD / "helm" / "helm"

    def build() -> None:
        tool = go()
        assert tool is not None
        build_run(["env", f"GOBIN={target.parent}", tool, "install", HELM])

    return built(target, [Path(__file__)], build)


def render(helm: Path, *options: str) -> list[dict[str, Any]]:
    """Return the objects of a release."""
    done = subprocess.run(
        [helm, "template", "trilogue", CHART, KUBERNETES, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def find(objects: list[dict[str, Any]], kind: str, name: str = "trilogue") -> dict[str, Any]:
    (found,) = (
        each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return found


def start_pod(
    objects: list[dict[str, Any]], number: int, folder: Path, secrets: dict[str, str]
) -> Server:
    """Run the container's command with the pod's environment, volumes, and free local ports."""
    name = f"trilogue-{number}"
    place = folder / name
    place.mkdir(exist_ok=True)
    (container,) = find(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    settings = folder / "trilogue.toml"
    settings.write_text(find(objects, "ConfigMap")["data"]["trilogue.toml"])
    environment = {"NAME": name, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for each in container["env"]:
        if "value" in each:
            environment[each["name"]] = each["value"]
        elif "secretKeyRef" in each["valueFrom"]:
            environment[each["name"]] = secrets[each["valueFrom"]["secretKeyRef"]["key"]]
    environment["TRILOGUE_DATA"] = str(place / "data")
    environment["TRILOGUE_CONFIG"] = str(settings)
    environment["TRILOGUE_READY_FILE"] = str(place / "ready")
    (script,) = container["args"]
    log_file = place / "output"
    with log_file.open("ab") as output:
        process = subprocess.Popen(
            [*container["command"], script.replace("0.0.0.0", "127.0.0.1")],
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Server(process, data=place / "data", ready_file=place / "ready", log_file=log_file)


def check_health(address: str) -> None:
    """Run the image's health check until the node is healthy, as a container engine does."""
    check = [sys.executable, DEPLOY / "healthcheck.py", address]
    wait_until(lambda: subprocess.run(check, check=False).returncode == 0, timeout_s=HEALTH_S)


def log_in(server: Server) -> AdminClient:
    """Return a client that logs in by the settings that the node wrote for clients."""
    config = dict(
        line.split("=", 1)
        for line in (server.data / "clients" / "librdkafka.conf").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    config["bootstrap.servers"] = server.doors["kafka-sasl-ssl"]
    return AdminClient({**config, "ssl.ca.location": str(server.data / "tls" / "ca.pem")})


def check_certificate(server: Server, host: str) -> None:
    """Check as a client does that the certificate is for a name."""
    context = ssl.create_default_context(cafile=str(server.data / "tls" / "ca.pem"))
    address, port = server.doors["kafka-sasl-ssl"].rsplit(":", 1)
    with (
        socket.create_connection((address, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def test_the_chart_has_no_faults(helm: Path):
    done = subprocess.run(
        [helm, "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set=replicas=3"], "need cluster.enabled"),
        (["--set=cluster.enabled=true"], "needs cluster.existingSecret"),
        (CLUSTER, "needs objects.url"),
        ([*CLUSTER, BUCKET, "--set=cluster.ack=most"], "shared or local"),
    ],
)
def test_values_that_cannot_be_are_refused(helm: Path, options: list[str], why: str):
    done = subprocess.run(
        [helm, "template", "trilogue", CHART, KUBERNETES, *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert why in done.stderr


def test_a_release_of_many_nodes_has_what_clients_and_operators_need(helm: Path):
    objects = render(
        helm, *CLUSTER, BUCKET, "--set=replicas=3", "--set=serviceMonitor.enabled=true"
    )

    assert {each["kind"] for each in objects} == {
        "StatefulSet", "Service", "ConfigMap", "Secret", "PodDisruptionBudget", "ServiceMonitor",
    }  # fmt: skip
    assert find(objects, "StatefulSet")["spec"]["replicas"] == 3
    nodes, start = find(objects, "Service", "trilogue-nodes"), find(objects, "Service")
    assert nodes["spec"]["clusterIP"] == "None"
    assert [each["port"] for each in start["spec"]["ports"]] == [9093, 6651, 8716, 8124, 8443]
    assert nodes["spec"]["ports"] == start["spec"]["ports"]


def test_a_pod_serves_in_clear(helm: Path, tmp_path: Path):
    objects = render(helm, "--set=secure=false", "--set=settings.topics\\.default-partitions=4",
                     *FREE_PORTS)  # fmt: skip

    with start_pod(objects, 0, tmp_path, {}).wait_ready() as server:
        check_health(server.http)
        brokers = AdminClient({"bootstrap.servers": server.kafka}).list_topics(timeout=60).brokers
        assert [each.host for each in brokers.values()] == [
            "trilogue-0.trilogue-nodes.default.svc.cluster.local"
        ]


def test_a_pod_serves_users_over_tls(helm: Path, tmp_path: Path):
    objects = render(helm, "--set=service.names={broker.example}", *FREE_PORTS)

    with start_pod(objects, 0, tmp_path, {}).wait_ready() as server:
        check_health(f"https://{server.doors['https']}")
        assert log_in(server).list_topics(timeout=60).brokers
        for host in (
            "trilogue-0.trilogue-nodes.default.svc.cluster.local",
            "trilogue.default.svc",
            "broker.example",
        ):
            check_certificate(server, host)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


def test_pods_of_a_cluster_are_nodes_with_one_authority(
    helm: Path, postgres: PostgresServer, tmp_path: Path
):
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    objects = render(
        helm, *CLUSTER, f"--set=objects.url=file://{bucket}", "--set=replicas=2", *FREE_PORTS
    )
    data = find(objects, "Secret", "trilogue-cluster")["data"]["cluster.secret"]
    key = subprocess.run(
        ["base64", "-d"], input=data, capture_output=True, text=True, check=True
    ).stdout
    secrets = {"url": postgres.new_database(), "password": "", "cluster.secret": key}

    first = start_pod(objects, 0, tmp_path, secrets)
    with first, start_pod(objects, 1, tmp_path, secrets) as second:
        for server in (first.wait_ready(), second.wait_ready()):
            check_health(f"https://{server.doors['https']}")
            assert len(log_in(server).list_topics(timeout=60).brokers) == 2
        authorities = {(each.data / "tls" / "ca.pem").read_bytes() for each in (first, second)}
        assert len(authorities) == 1
