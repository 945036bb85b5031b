"""Run the suites of Pulsar's own clients on Trilogue or on a real Pulsar, test by test.

    git clone https://github.com/apache/pulsar-client-go DIR      # and so on
    python -m tools.pulsar_suites go DIR --server trilogue --out ours.json
    python -m tools.pulsar_suites go DIR --server pulsar --out real.json
    python -m tools.pulsar_suites report --ours ours.json --real real.json

Suites: `python` (apache/pulsar-client-python, needs fastavro and testcontainers beside
pulsar-client), `go` (apache/pulsar-client-go; with `--package` its administration, oauth2 …),
`rust` (streamnative/pulsar-rs, needs protoc), `node` (apache/pulsar-client-node, after
`npm install --ignore-scripts` and `npx node-pre-gyp rebuild --build-from-source` with a libpulsar
that is built; LD_LIBRARY_PATH finds it). They want their server on ports 6650, 6651, 8080 and 8443
of localhost: the run makes itself a network of its own (`unshare --net`, as root), so that nothing
else is in the way. The server has the users, certificates and permissions that the scripts
of the Go suite give theirs (`--plain`: none of them, and what needs security is left out); that of
Node's suite has TLS and no logins. Nothing of the suites is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import jwt
from tests.server import start_server

from tools.kafka_suites.javascript import run_jest
from tools.kafka_suites.programs import Run
from tools.servers.pulsar import RealPulsar
from tools.suites import FAILED, PASSED, SKIPPED, Results, enter_own_network, note, report, run

SECURITY = re.compile(
    r"TLS|HTTPS|tls_|[Aa]uth(?!or)|OAuth|oauth|CAError|Basic|Certificate|certificate"
)
TELLING = (
    r"Error:\s+(.*(?:\n\s+(?:expected|actual) *:.*)*)", r"panicked at .*\n(.*)",
    r"^(?:\w+\.)*(\w*(?:Error|Exception|Busy|Timeout|Refused)\b.*)$", r"^(panic: .*)$",
)  # fmt: skip
PYTHON_FILES = [
    "custom_logger_test", "debug_logger_test", "interrupted_test", "pulsar_test", "schema_test",
    "table_view_test", "reader_test", "asyncio_test",
]  # fmt: skip
NAMESPACES = {  # and who may produce and consume there
    "public/default": "anonymous", "public/default-2": "anonymous",
    "private/auth": "token-principal",
}  # fmt: skip
HOST = "127.0.0.1"
READY = "http://localhost:8080/admin/v2/brokers/ready"


@dataclass(frozen=True)
class Certificate:
    """The one of Node's suite, which its server has and its clients may show."""

    folder: Path

    def of_trilogue(self, folder: Path) -> dict[str, object]:
        """The settings of a Trilogue with TLS and without logins."""
        return {
            "tls.certificate": self.folder / "server.crt",
            "tls.key": private_copy(self.folder / "server.key", folder),
            "tls.client-ca": self.folder / "server.crt",
            "tls.client-certificates": "optional",
            "pulsar.advertised-listeners": self.listeners,
        }

    @property
    def listeners(self) -> str:
        """The addresses that its clients ask for by name, as both servers write them."""
        addresses = {"localhost6650": "pulsar://localhost:6650"}
        for port in (6651, 8443):
            addresses[f"localhost{port}"] = f"pulsar+ssl://localhost:{port}"
        return ",".join(f"{name}:{url}" for name, url in addresses.items())

    def of_pulsar(self, _: Path) -> dict[str, object]:
        """The same for a real Pulsar, as in `tests/conf/standalone.conf`."""
        return {
            "brokerServicePortTls": 6651,
            "webServicePortTls": 8443,
            "tlsCertificateFilePath": self.folder / "server.crt",
            "tlsKeyFilePath": self.folder / "server.key",
            "tlsTrustCertsFilePath": self.folder / "server.crt",
            "advertisedListeners": self.listeners,
        }


@dataclass(frozen=True)
class Identities:
    """Keys and certificates of a suite: its own where it has some, otherwise those of Go's."""

    certificates: Path
    secret: Path  # of tokens, HS256
    password: str = "123456"  # of `admin`

    def token(self, user: str) -> str:
        return jwt.encode({"sub": user}, self.secret.read_bytes(), "HS256", headers={"typ": None})

    def of_trilogue(self, folder: Path) -> dict[str, object]:
        """The settings of a Trilogue that knows them."""
        users = folder / "users"
        users.touch(mode=0o600)
        users.write_text(f"admin:{self.password}\n")
        return {
            "access.authenticate": True,
            "access.authorize": True,
            "access.anonymous": "anonymous",
            "access.super-users": "User:localhost;User:superUser;User:admin",
            "access.users-file": users,
            "access.token-key": private_copy(self.secret, folder),
            "tls.certificate": self.certificates / "broker-cert.pem",
            "tls.key": private_copy(self.certificates / "broker-key.pem", folder),
            "tls.client-ca": self.certificates / "cacert.pem",
            "tls.client-certificates": "optional",
            "tls.principal-rules": "RULE:^.*?CN=([^,]+).*$/$1/,DEFAULT",
        }

    def of_pulsar(self, folder: Path) -> dict[str, object]:
        """The same for a real Pulsar, as in `integration-tests/conf/standalone.conf`."""
        passwords = folder / "htpasswd"
        made = ["openssl", "passwd", "-apr1", self.password]
        digest = subprocess.run(made, check=True, capture_output=True, text=True).stdout
        passwords.write_text(f"admin:{digest}")
        provider = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
        own = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
        certificate = {
            "tlsCertFile": str(self.certificates / "client-cert.pem"),
            "tlsKeyFile": str(self.certificates / "client-key.pem"),
        }
        return {
            "brokerServicePortTls": 6651,
            "webServicePortTls": 8443,
            "tlsCertificateFilePath": self.certificates / "broker-cert.pem",
            "tlsKeyFilePath": self.certificates / "broker-key.pem",
            "tlsTrustCertsFilePath": self.certificates / "cacert.pem",
            "anonymousUserRole": "anonymous",
            "authenticationEnabled": "true",
            "authenticationProviders": ",".join(
                f"{provider}{x}" for x in ("Tls", "Token", "Basic")
            ),
            "authorizationEnabled": "true",
            "tokenSecretKey": f"file://{self.secret}",
            "basicAuthConf": f"file://{passwords}",
            "superUserRoles": "localhost,superUser,admin",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.certificates / "cacert.pem",
            "brokerClientAuthenticationPlugin": own,
            "brokerClientAuthenticationParameters": json.dumps(certificate),
        }


def private_copy(file: Path, folder: Path) -> Path:
    """Return a copy that only its owner may read, as the server wants."""
    copy = folder / file.name
    copy.touch(mode=0o600)
    copy.write_bytes(file.read_bytes())
    return copy


def identities(suite: str, folder: Path) -> Identities:
    """The identities of a suite; a token is put where the Python suite reads one."""
    root = folder.absolute()
    if suite == "go":
        return Identities(
            root / "integration-tests/certs", root / "integration-tests/tokens/secret.key"
        )
    secret = Path(tempfile.mkdtemp()) / "secret.key"
    secret.write_bytes(os.urandom(32))
    made = Identities(root / "tests/test-conf", secret)
    if suite == "python":
        (root / "tests/.test-token.txt").write_text(made.token("token-principal"))
    return made


@contextmanager
def server(name: str, known: Identities | Certificate | None) -> Iterator[str]:
    """One on the ports that the suites want, with the tenants that their scripts make."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if name == "pulsar":
            settings: dict[str, object] = {"webServicePort": 8080}
            if known:
                settings |= {"advertisedAddress": "localhost", **known.of_pulsar(folder)}
            real = RealPulsar(folder, port=6650, heap="1g", direct="2g", settings=settings)
            real.http_port = 8080
            if known:
                real.launch()
                wait_until_ready(real)
            else:
                real.start()
            stop = real.kill9
        else:
            listen = {"pulsar": f"{HOST}:6650", "http": f"{HOST}:8080"}
            settings: dict[str, object] = {}
            if known:
                listen |= {"pulsar-ssl": f"{HOST}:6651", "https": f"{HOST}:8443"}
                settings = {"pulsar.max-message": "1MiB", "subscriptions.check-every": "5s"}
                advertised = {"pulsar": "localhost:6650", "pulsar-ssl": "localhost:6651"}
                settings |= {f"advertise.{each}": name for each, name in advertised.items()}
                settings |= known.of_trilogue(folder)
            ours = start_server(folder / "data", listen=listen, settings=settings)
            stop = ours.kill9
        try:
            make_tenants(known if isinstance(known, Identities) else None)
            yield name
        finally:
            if name != "pulsar":
                shutil.copy(ours.log_file, "/tmp/pulsar-suites-server.log")
            stop()


def wait_until_ready(real: RealPulsar) -> None:
    """Wait for the namespace that a standalone makes last; its tests' probe has no login."""
    for _ in range(3_000):
        if not real.alive:
            raise RuntimeError(f"pulsar ended before it answered:\n{real.output[-2000:]}")
        with suppress(OSError):
            urllib.request.urlopen(
                "http://localhost:8080/admin/v2/brokers/ready", timeout=5
            ).close()
            return
        time.sleep(0.2)
    raise RuntimeError("pulsar did not answer within 600 s")


def make_tenants(known: Identities | None) -> None:
    for namespace, role in NAMESPACES.items():
        tenant = namespace.split("/")[0]
        admins = ["anonymous"] if known and tenant == "public" else []
        for method in ("PUT", "POST"):  # it may exist
            body = {"adminRoles": admins, "allowedClusters": ["standalone"]}
            send(method, f"tenants/{tenant}", known, body)
        send("PUT", f"namespaces/{namespace}", known, {"replication_clusters": ["standalone"]})
        if known:
            granted = f"namespaces/{namespace}/permissions/{role}"
            send("POST", granted, known, ["produce", "consume"])


def send(method: str, path: str, known: Identities | None, body: object = None) -> None:
    request = urllib.request.Request(
        f"http://localhost:8080/admin/v2/{path}", json.dumps(body).encode(), method=method
    )
    request.add_header("Content-Type", "application/json")
    if known:
        request.add_header("Authorization", f"Bearer {known.token('superUser')}")
    try:
        urllib.request.urlopen(request, timeout=20).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:
            print(f"{path}: {error.code} {error.read()[:200]!r}", file=sys.stderr)


def left_out(test: str) -> str:
    return "security" if SECURITY.search(test) else ""


def go(folder: Path, chosen: argparse.Namespace) -> Results:
    where = folder / chosen.package
    program = where.absolute() / "suite.test"
    tool = shutil.which("go") or "/usr/local/go/bin/go"
    if not program.exists():
        subprocess.run([tool, "test", "-c", "-o", program, "."], cwd=where, check=True)
    _, listed = run([str(program), "-test.list", "^Test"], where, 60)
    results: Results = {}
    for test in listed.split():
        if not re.search(chosen.only, test):
            continue
        if chosen.plain and (why := left_out(test)):
            results[test] = {"result": SKIPPED, "why": why}
            continue
        began = time.monotonic()
        limit = f"-test.timeout={chosen.seconds:.0f}s"
        command = [str(program), f"-test.run=^{test}$", "-test.v", limit]
        code, output = run(command, where, chosen.seconds + 10)
        skipped = f"--- SKIP: {test} " in output
        noted(results, test, SKIPPED if skipped else PASSED if code == 0 else FAILED, began, output)
    return results


def rust(folder: Path, chosen: argparse.Namespace) -> Results:
    features = ["--no-default-features", "--features", "compression,tokio-runtime,admin-api"]
    command = ["cargo", "test", "--lib", *features]
    built = subprocess.run(
        [*command, "--no-run"], cwd=folder, check=True, capture_output=True, text=True
    )
    program = re.findall(r"\((\S+deps/pulsar-\w+)\)", built.stderr)[-1]
    program = str((folder / program).absolute())
    _, listed = run([program, "--list"], folder, 60)
    results: Results = {}
    for test in re.findall(r"^(\S+): test$", listed, re.MULTILINE):
        if not re.search(chosen.only, test):
            continue
        if chosen.plain and (why := left_out(test)):
            results[test] = {"result": SKIPPED, "why": why}
            continue
        began = time.monotonic()
        code, output = run([program, "--exact", test, "--nocapture"], folder, chosen.seconds)
        skipped = "1 ignored" in output
        noted(results, test, SKIPPED if skipped else PASSED if code == 0 else FAILED, began, output)
    return results


def python(folder: Path, chosen: argparse.Namespace) -> Results:
    where = folder / "tests"
    script = (
        "import sys, unittest, importlib\n"
        "def walk(suite):\n"
        "    for each in suite:\n"
        "        if isinstance(each, unittest.TestSuite): yield from walk(each)\n"
        "        else: print(each.id())\n"
        "for name in sys.argv[1:]:\n"
        "    list(walk(unittest.defaultTestLoader.loadTestsFromName(name)))\n"
    )
    _, listed = run([sys.executable, "-c", script, *PYTHON_FILES], where, 60)
    results: Results = {}
    for test in re.findall(r"^\w+_test\.\S+$", listed, re.MULTILINE):
        if not re.search(chosen.only, test):
            continue
        if chosen.plain and (why := left_out(test)):
            results[test] = {"result": SKIPPED, "why": why}
            continue
        began = time.monotonic()
        _, output = run([sys.executable, "-m", "unittest", "-v", test], where, chosen.seconds)
        skipped = "OK (skipped" in output
        passed = re.search(r"^OK$", output, re.MULTILINE)  # the library may crash when it ends
        noted(results, test, SKIPPED if skipped else PASSED if passed else FAILED, began, output)
    return results


def node(folder: Path, chosen: argparse.Namespace) -> Results:
    job = Run(
        folder.absolute(), chosen.only, chosen.seconds, "", "", Path(), secured=True, share=True
    )
    run_jest(job, (folder.absolute() / "tests").glob("*.test.js"), {})
    return job.results


def noted(results: Results, test: str, result: str, began: float, output: str) -> None:
    note(results, test, result, time.monotonic() - began, output, telling=TELLING)


def main() -> None:
    parser = argparse.ArgumentParser(description="suites of Pulsar's own clients")
    parser.add_argument("suite", choices=["go", "python", "rust", "node", "report"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--server", choices=["trilogue", "pulsar"], default="trilogue")
    parser.add_argument("--plain", action="store_true", help="a server without security")
    parser.add_argument("--package", default="pulsar", help="of the Go suite")
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each test at most")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ours", type=Path)
    parser.add_argument("--real", type=Path)
    chosen = parser.parse_args()
    if chosen.suite == "report":
        ours, real = (json.loads(each.read_text()) for each in (chosen.ours, chosen.real))
        report(ours, real, "Pulsar", left_out if chosen.plain else lambda _: "")
        return
    enter_own_network("tools.pulsar_suites")
    known: Identities | Certificate | None = None
    if chosen.suite == "node":
        known = Certificate(chosen.folder.absolute() / "tests/certificate")
    elif not chosen.plain:
        known = identities(chosen.suite, chosen.folder)
    with server(chosen.server, known):
        suite = {"go": go, "rust": rust, "python": python, "node": node}[chosen.suite]
        results = suite(chosen.folder, chosen)
    if chosen.out:
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
