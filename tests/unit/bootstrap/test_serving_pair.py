"""The serving pair is made once, used as it is, and refused when half of it is missing."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.bootstrap.adapters.serving_pair import PairReport, PairRequest, make_self_signed, settle, settle_in_child

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def pem() -> tuple[bytes, bytes]:
    return make_self_signed("node-1", NOW)


def ask(directory: Path, *, may_create: bool = True, client_ca: str = "") -> PairReport:
    return settle(
        PairRequest(
            certificate_file=str(directory / "kubelet.crt"),
            private_key_file=str(directory / "kubelet.key"),
            may_create=may_create,
            host_name="node-1",
            client_ca_file=client_ca,
        )
    )


def write(directory: Path, pem: tuple[bytes, bytes]) -> None:
    (directory / "kubelet.crt").write_bytes(pem[0])
    (directory / "kubelet.key").write_bytes(pem[1])


def test_the_made_certificate_is_the_kubelets(pem: tuple[bytes, bytes]) -> None:
    leaf, ca = x509.load_pem_x509_certificates(pem[0])
    name = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    assert name == f"node-1@{int(NOW.timestamp())}"
    assert leaf.issuer == ca.subject
    leaf.verify_directly_issued_by(ca)
    assert leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    ) == ["node-1"]
    assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (NOW - leaf.not_valid_before_utc).total_seconds() == 3600
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 365
    assert b"BEGIN RSA PRIVATE KEY" in pem[1]


@pytest.mark.parametrize("host", ["192.0.2.7", "n" * 200])
def test_any_node_name_gets_a_certificate(host: str) -> None:
    leaf = x509.load_pem_x509_certificates(make_self_signed(host, NOW)[0])[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert host in [str(name.value) for name in names]


def test_a_missing_pair_is_made_and_then_kept(tmp_path: Path) -> None:
    first = ask(tmp_path / "pki")
    content = (tmp_path / "pki/kubelet.crt").read_bytes()
    assert first.created and not first.problems
    assert (tmp_path / "pki/kubelet.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "pki/kubelet.crt").stat().st_mode & 0o777 == 0o644
    assert not ask(tmp_path / "pki").created
    assert (tmp_path / "pki/kubelet.crt").read_bytes() == content
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        tmp_path / "pki/kubelet.crt", tmp_path / "pki/kubelet.key"
    )


def test_an_expired_pair_is_used_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, make_self_signed("other", datetime(2001, 1, 1, tzinfo=UTC)))
    assert ask(tmp_path) == PairReport(not_after="2001-12-31T23:00:00Z")


@pytest.mark.parametrize("half", ["kubelet.crt", "kubelet.key"])
def test_half_a_pair_is_refused(tmp_path: Path, pem: tuple[bytes, bytes], half: str) -> None:
    write(tmp_path, pem)
    (tmp_path / half).unlink()
    [line] = ask(tmp_path).problems
    assert f"{half} is missing while" in line and "remove both" in line


def test_a_given_pair_is_never_made(tmp_path: Path) -> None:
    [line] = ask(tmp_path, may_create=False).problems
    assert "does not exist" in line


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, pem: tuple[bytes, bytes]) -> None:
    write(tmp_path, (pem[0], make_self_signed("node-1", NOW)[1]))
    [line] = ask(tmp_path).problems
    assert "is not the key of" in line and "PRIVATE KEY" not in line


@pytest.mark.parametrize("broken", ["kubelet.crt", "kubelet.key"])
def test_a_file_that_is_no_pem_is_refused(tmp_path: Path, pem: tuple[bytes, bytes], broken: str) -> None:
    write(tmp_path, pem)
    (tmp_path / broken).write_bytes(b"torn")
    [line] = ask(tmp_path).problems
    assert str(tmp_path / broken) in line


@pytest.mark.parametrize("moment", ["before the key", "after the key"])
def test_a_crash_while_making_the_pair_is_mended(tmp_path: Path, pem: tuple[bytes, bytes], moment: str) -> None:
    (tmp_path / ".kubelet.crt.pending").write_bytes(pem[0])
    if moment == "after the key":
        (tmp_path / "kubelet.key").write_bytes(pem[1])
    report = ask(tmp_path)
    assert not report.problems
    assert report.created is (moment == "before the key")
    assert not (tmp_path / ".kubelet.crt.pending").exists()


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"x", "no PEM certificate")])
def test_an_unusable_client_ca_is_refused(
    tmp_path: Path, pem: tuple[bytes, bytes], content: bytes | None, reason: str
) -> None:
    write(tmp_path, pem)
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    [line] = ask(tmp_path, client_ca=str(tmp_path / "ca.pem")).problems
    assert line.startswith(f"authentication.x509.clientCAFile: {tmp_path}/ca.pem") and reason in line


def test_the_child_reports_what_it_found(tmp_path: Path, pem: tuple[bytes, bytes]) -> None:
    write(tmp_path, pem)
    request = PairRequest(
        certificate_file=str(tmp_path / "kubelet.crt"),
        private_key_file=str(tmp_path / "kubelet.key"),
        may_create=True,
        host_name="node-1",
        client_ca_file="",
    )
    assert settle_in_child(request) == PairReport(not_after="2026-06-01T11:00:00Z")
