"""Preflight notes a serving certificate that an API server of Kubernetes 1.38 would not accept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.bootstrap.adapters.serving_pair import make_self_signed
from services.cli.preflight.findings import Section, Severity
from services.cli.preflight.serving_name import serving_name_findings
from shared.config.effective import EffectiveConfig

WALL = datetime(2026, 11, 29, tzinfo=UTC)


def config(directory: Path, **changes: Any) -> EffectiveConfig:
    places = {"root_dir": "/r", "run_dir": "/u", "log_dir": "/l", "cert_dir": str(directory)}
    given = {"node_name": "n1", "kubeconfig": "/k", "tls_cert_file": str(directory / "kubelet.crt")}
    return EffectiveConfig(**{**places, **given, **changes})


def write(directory: Path, name: str) -> None:
    (directory / "kubelet.crt").write_bytes(make_self_signed(name, WALL)[0])


def test_a_certificate_with_another_name_is_noted(tmp_path: Path) -> None:
    write(tmp_path, "n1")
    (found,) = serving_name_findings(config(tmp_path), WALL.timestamp())
    assert (found.section, found.severity, found.where) == (
        Section.CLUSTER,
        Severity.NOTE,
        str(tmp_path / "kubelet.crt"),
    )
    assert "where the name is not CN=system:node:n1" in found.what and "serverTLSBootstrap" in found.remedy


@pytest.mark.parametrize("changes", [{"server_tls_bootstrap": True}, {"kubeconfig": ""}], ids=str)
def test_one_that_the_api_server_issues_and_one_that_no_cluster_reads_are_not(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path, "n1")
    assert serving_name_findings(config(tmp_path, **changes), WALL.timestamp()) == []


def test_neither_is_one_that_is_not_there_yet_or_broken(tmp_path: Path) -> None:
    assert serving_name_findings(config(tmp_path), WALL.timestamp()) == []
    (tmp_path / "kubelet.crt").write_text("x")
    assert serving_name_findings(config(tmp_path), WALL.timestamp()) == []


def test_one_with_the_name_is_not(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, "system:node:n1")]
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in attributes])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, WALL, WALL + timedelta(days=1))
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "kubelet.crt").write_bytes(signed)
    assert serving_name_findings(config(tmp_path), WALL.timestamp()) == []
