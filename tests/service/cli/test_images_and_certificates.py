"""`bulkhead images`, `certs` and `get`, asked of running processes and of the agent's files."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import DER_cert_to_PEM_cert, PEM_cert_to_DER_cert

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective
from tests.service.cli.stage import Stage

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
ENDS = datetime(2093, 5, 18, 3, 30, tzinfo=UTC)
EXPIRED = datetime(2025, 1, 1, tzinfo=UTC)


def pem(name: str, ends: datetime) -> str:
    """A self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 7, BEGIN, ends)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def started(directory: Path) -> Stage:
    """A stage with the serving certificate of a node that runs alone."""
    (directory / "pki").mkdir()
    (directory / "pki/kubelet.crt").write_text(pem("here@1", ENDS))
    return Stage(directory, 3)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = started(tmp_path)
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One that all tests share that change nothing."""
    stage = started(tmp_path_factory.mktemp("agent"))
    yield stage
    stage.stop()


def configure(stage: Stage, **more: object) -> None:
    """Bring a configuration into force."""
    directory = stage.run_dir.parent
    config = EffectiveConfig(
        node_name="here",
        root_dir=str(directory / "kubelet"),
        run_dir=str(stage.run_dir),
        log_dir=str(stage.log_dir),
        cert_dir=str(directory / "pki"),
        **more,  # type: ignore[arg-type]
    )
    (stage.run_dir / CONFIG_NAME).write_bytes(encode_effective(config, ""))


def test_images_have_a_row_for_each_tag_and_are_found_by_name(unchanged: Stage) -> None:
    lines = unchanged.command("images").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["IMAGE", "TAG", "IMAGE", "ID", "SIZE"],
        ["registry.example:5000/web", "1", "1f2e3d4c5b6a7", "2.0", "MiB"],
        ["registry.example:5000/web", "latest", "1f2e3d4c5b6a7", "2.0", "MiB"],
        ["registry.example/db", "<none>", "aaaabbbbccccd", "1.0", "KiB"],
        ["<none>", "<none>", "0123", "1", "B"],
    ]
    assert unchanged.command("get", "image").stdout.splitlines() == lines
    [found] = json.loads(unchanged.command("images", "/db", "-o", "json").stdout)
    assert (found["names"], found["size_bytes"]) == (["registry.example/db@sha256:cd"], 1024)
    nothing = unchanged.command("images", "nothing")
    assert (nothing.returncode, nothing.stderr) == (0, "no images on this node with 'nothing' in their name\n")


def test_a_node_that_runs_alone_shows_its_serving_certificate(unchanged: Stage) -> None:
    answer = unchanged.command("certs", environment={"TZ": "Asia/Kolkata"})  # 5 h 30 min before UTC
    assert (answer.returncode, answer.stderr) == (0, "")
    header, row = answer.stdout.splitlines()
    assert header.split() == ["CERTIFICATE", "EXPIRES", "LEFT", "RENEWED", "SUBJECT", "FILE"]
    assert row.startswith("serving ") and "2093-05-18 09:00:00" in row and row.endswith("/pki/kubelet.crt")


def test_certificates_of_a_cluster_are_shown_with_the_first_to_expire_first(stage: Stage) -> None:
    directory = stage.run_dir.parent
    (directory / "clients.crt").write_text(pem("old clients", EXPIRED) + pem("clients", ENDS + timedelta(days=2)))
    configure(
        stage,
        kubeconfig="/etc/kubernetes/kubelet.conf",
        rotate_certificates=True,
        client_ca_file=str(directory / "clients.crt"),
    )
    client = pem("system:node:here", ENDS - timedelta(days=1)) + pem("its issuer", EXPIRED)
    authority = pem("kubernetes", ENDS + timedelta(days=1))
    files = CredentialFiles(stage.run_dir)
    files.prepare()
    files.put(ResolvedCredentials(server="https://192.0.2.1", ca=authority, certificate=client, key="secret key"))
    answer = stage.command("certs", "-o", "json")
    assert answer.returncode == 3 and "secret" not in answer.stdout
    found = json.loads(answer.stdout)
    assert [(row["certificate"], row["subject"], row["renewed"], row["expired"]) for row in found] == [
        ("client CA", "CN=old clients", False, True),
        ("client", "CN=system:node:here", True, False),
        ("serving", "CN=here@1", False, False),
        ("API server CA", "CN=kubernetes", False, False),
        ("client CA", "CN=clients", False, False),
    ]
    assert [row["not_after"] for row in found[:2]] == ["2025-01-01T00:00:00Z", "2093-05-17T03:30:00Z"]
    assert found[1]["file"] == f"{directory}/pki/kubelet-client-current.pem"
    assert found[3]["file"] == "/etc/kubernetes/kubelet.conf"


def damaged(certificate: str) -> str:
    """The certificate with a subject that is no UTF-8."""
    content = PEM_cert_to_DER_cert(certificate)
    return DER_cert_to_PEM_cert(content.replace(b"clients", b"cli\xff\xff\xff\xff"))


@pytest.mark.parametrize("content", ["no PEM", damaged(pem("clients", ENDS))], ids=["text", "subject"])
def test_a_file_without_a_certificate_is_named_and_the_others_are_shown(stage: Stage, content: str) -> None:
    wrong = stage.run_dir.parent / "clients.crt"
    wrong.write_text(content)
    configure(stage, client_ca_file=str(wrong))
    answer = stage.command("certs")
    assert answer.returncode == 1 and "serving" in answer.stdout
    assert answer.stderr == f"client CA: {wrong}: holds no readable PEM certificate (replace it)\n"


@pytest.mark.parametrize(("kind", "command"), [("pods", "pods"), ("po", "pods"), ("ev", "events"), ("cert", "certs")])
def test_get_lists_what_the_command_lists(unchanged: Stage, kind: str, command: str) -> None:
    assert unchanged.command("get", kind, "-o", "json").stdout == unchanged.command(command, "-o", "json").stdout != ""


def test_get_node_is_the_status(unchanged: Stage) -> None:
    assert json.loads(unchanged.command("get", "nodes", "-o", "json").stdout)["node"] == "here"
