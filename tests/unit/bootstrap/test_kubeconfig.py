"""A kubeconfig resolved in its child: what comes out, and the line for each thing that can be wrong."""

import time
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.adapters.kubeconfig import KubeconfigReport, resolve, resolve_in_child
from shared.time.timestamps import rfc3339
from tests.process.supervised import alive
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.bootstrap.kubeconfigs import encoded, exec_output, inline, kubeconfig, plugin, write
from tests.unit.kube.tls_world import Authority, write_pair
from tools.leftovers import wait_until

CA = Authority()
NODE, OTHER = CA.issue("system:node:a"), CA.issue("system:node:b")


def outcome(tmp_path: Path, document: dict[str, Any]) -> KubeconfigReport:
    path = write(tmp_path / "kubelet.conf", document)
    return resolve(str(path), timeout=30)


def problem(tmp_path: Path, document: dict[str, Any]) -> str:
    report = outcome(tmp_path, document)
    assert report.material is None
    [line] = report.problems
    assert "\n" not in line
    return line.removeprefix(f"--kubeconfig: {tmp_path}/kubelet.conf: ")


def test_the_child_resolves_what_is_written_out(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": encoded(CA.pem), "tls-server-name": "api", "proxy-url": "http://p:1"}
    path = write(tmp_path / "kubelet.conf", kubeconfig(inline(NODE), **cluster))
    report = resolve_in_child(str(path))
    found = report.material
    assert found is not None
    assert (found.server, found.tls_server_name, found.proxy_url) == ("https://127.0.0.1:6443", "api", "http://p:1")
    assert (found.ca.encode(), found.certificate.encode(), found.key.encode()) == (CA.pem, NODE.certificate, NODE.key)
    assert (found.token, report.expires_at, report.files) == ("", 0.0, ())
    assert [path.name for path in tmp_path.iterdir()] == ["kubelet.conf"]
    assert "PRIVATE" not in repr(report)


def test_files_are_read_beside_the_kubeconfig(tmp_path: Path) -> None:
    write_pair(NODE, tmp_path, "node")
    (tmp_path / "token").write_text("fr0m-file\n")
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    user = {"client-certificate": "node.crt", "client-key": "node.key", "tokenFile": "token", "token": "written-out"}
    report = outcome(tmp_path, kubeconfig(user, **{"certificate-authority": "ca.crt"}))
    assert report.material is not None
    assert (report.material.token, report.material.key.encode()) == ("fr0m-file", NODE.key)
    assert set(report.files) == {str(tmp_path / name) for name in ("node.crt", "node.key", "token", "ca.crt")}


def test_no_verification_and_plain_http(tmp_path: Path) -> None:
    found = outcome(tmp_path, kubeconfig(**{"insecure-skip-tls-verify": True})).material
    assert found is not None
    assert (found.insecure_skip_tls_verify, found.token) == (True, "t0p")
    found = outcome(tmp_path, kubeconfig(server="http://localhost:8080/k/")).material
    assert found is not None
    assert found.server == "http://localhost:8080/k"


@pytest.mark.parametrize(
    ("user", "start"),
    [
        ({"client-certificate": "no.crt", "client-key": "no.key"}, "client-certificate: DIR/no.crt cannot be read: No"),
        ({"tokenFile": "no"}, "tokenFile: DIR/no cannot be read: No such file"),
        ({"tokenFile": "empty"}, "tokenFile: empty is empty"),
        ({"token": "two\nlines"}, "the token holds characters that no token has"),
        ({"client-certificate-data": "%", "client-key-data": "eA=="}, "client-certificate-data is not base64"),
        ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, "client-certificate holds no PEM certificate"),
        ({**inline(NODE), "client-key-data": "eA=="}, "client-key holds no unencrypted PEM private key"),
        ({**inline(NODE), "client-key-data": inline(OTHER)["client-key-data"]}, "client-key is not the key of"),
        (inline(CA.issue("old", ends_in=-60)), "client-certificate has expired on 20"),
        ({"exec": {"command": 7}}, "exec has no command"),
    ],
)
def test_bad_users(tmp_path: Path, user: dict[str, Any], start: str) -> None:
    (tmp_path / "empty").touch()
    assert problem(tmp_path, kubeconfig(user)).startswith(start.replace("DIR", str(tmp_path)))


def test_a_bad_authority(tmp_path: Path) -> None:
    line = problem(tmp_path, kubeconfig(**{"certificate-authority-data": encoded(b"no pem")}))
    assert line.startswith("certificate-authority holds no PEM certificate")


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (b"a: [", "is not YAML: line "),
        (b"\xff\xfe", "is not text"),
        (b"", "is empty, and this is no pod with a service account"),
        (b"- 1\n", "is not a kubeconfig"),
        (b"a: 1\n---\nb: 1\n", "holds 2 YAML documents"),
        (b"a: !!python/object:os.system {}\n", "is empty, and this is no pod"),  # a tag makes no object
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = tmp_path / "kubelet.conf"
    path.write_bytes(content)
    [line] = resolve(str(path), timeout=30).problems
    assert line.removeprefix(f"--kubeconfig: {path}: ").startswith(start)


def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    [line] = resolve_in_child(f"{tmp_path}/none").problems
    assert line == (
        f"--kubeconfig: {tmp_path}/none: cannot be read: No such file or directory "
        "(give the path of a kubeconfig, or leave out the flag)"
    )


@pytest.mark.parametrize("version", ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"])
def test_a_plugin_gives_a_token_until_a_time(tmp_path: Path, version: str) -> None:
    ends = float(int(time.time()) + 600)
    status = {"token": "fr0m-plugin", "expirationTimestamp": rfc3339(ends)}
    (tmp_path / "bin").mkdir()
    user = plugin(tmp_path / "bin/get", 'test "$WHO" = "me $1" || exit 3\n' + exec_output(status, version), version)
    user["exec"] |= {"command": "./bin/get", "args": ["arg"], "env": [{"name": "WHO", "value": "me arg"}]}
    report = outcome(tmp_path, kubeconfig(user))
    assert report.problems == ()
    assert report.material is not None
    assert (report.material.token, report.expires_at) == ("fr0m-plugin", ends)


def test_a_plugin_gives_a_certificate_and_gets_the_cluster(tmp_path: Path) -> None:
    status = {"clientCertificateData": NODE.certificate.decode(), "clientKeyData": NODE.key.decode()}
    body = f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/exec-info\n' + exec_output(status)
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    user = plugin(tmp_path / "get", body, provideClusterInfo=True)
    report = outcome(tmp_path, kubeconfig(user, **{"certificate-authority": "ca.crt"}))
    assert report.material is not None
    assert report.material.key.encode() == NODE.key
    assert time.time() < report.expires_at <= time.time() + 86400
    assert encoded(CA.pem) in (tmp_path / "exec-info").read_text()
    assert '"interactive": false' in (tmp_path / "exec-info").read_text()


@pytest.mark.parametrize(
    ("body", "start"),
    [
        ("echo 'no network' >&2; exit 4", "process returned 4. no network (run it by hand)"),
        ("echo s3cret", "failed to decode process output"),
        ("echo '{}'", "malformed response"),
        (exec_output({"token": ""}), "gave neither token nor"),
        (exec_output({"token": 7}), "gave a token that is no text"),
        (exec_output({"token": "x", "expirationTimestamp": "soon"}), "gave an expirationTimestamp that is no time"),
        (
            exec_output({"token": "x", "expirationTimestamp": "2020-01-01T00:00:00Z"}),
            "gave credentials that have expired",
        ),
        (exec_output({"clientCertificateData": "x", "clientKeyData": "y"}), "client-certificate holds no PEM"),
        (exec_output({"token": "x"}, "client.authentication.k8s.io/v1beta1"), "plugin api version"),
    ],
)
def test_a_plugin_that_fails(tmp_path: Path, body: str, start: str) -> None:
    document = kubeconfig(plugin(tmp_path / "get", body))
    line = problem(tmp_path, document)
    assert outcome(tmp_path, document).not_yet
    text = line.removeprefix(f"exec: {tmp_path}/get").lstrip(": ")
    assert text.startswith(start)
    assert "s3cret" not in line


def test_a_missing_plugin_gives_its_hint(tmp_path: Path) -> None:
    user = {"exec": {**plugin(tmp_path / "x", "")["exec"], "command": "no-such-plugin", "installHint": "get\nit"}}
    line = problem(tmp_path, kubeconfig(user))
    assert line == "exec: no-such-plugin cannot be run: No such file or directory (get it)"
    assert not outcome(tmp_path, kubeconfig(user)).not_yet
    assert not outcome(tmp_path, kubeconfig({"tokenFile": "no"})).not_yet


def test_a_plugin_that_is_no_program_is_a_mistake(tmp_path: Path) -> None:
    user = plugin(tmp_path / "get", "")
    (tmp_path / "get").chmod(0o644)
    report = outcome(tmp_path, kubeconfig(user))
    assert "cannot be run: Permission denied" in report.problems[0]
    assert not report.not_yet


@pytest.mark.long
def test_a_plugin_that_hangs_is_given_up_and_ended(tmp_path: Path) -> None:
    body = f"echo $$ > {tmp_path}/pid; exec sleep 1000"
    path = write(tmp_path / "kubelet.conf", kubeconfig(plugin(tmp_path / "get", body)))
    report = resolve_in_child(str(path), timeout=3)  # it has begun by then, also where the machine is busy
    [line] = report.problems
    assert report.not_yet
    assert "exec: " in line
    assert "did not end in time" in line
    pid = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: not alive(pid), WAIT_SECONDS)  # it was killed, and the kernel takes its moment


@pytest.mark.long
def test_a_plugin_is_left_alone_when_only_the_shape_is_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "kubelet.conf", kubeconfig(plugin(tmp_path / "get", f"touch {tmp_path}/ran")))
    report = resolve_in_child(str(path), timeout=0)
    assert report == KubeconfigReport(cluster={"server": "https://127.0.0.1:6443"})
    assert not (tmp_path / "ran").exists()
