"""The serving pair is made once, used as it is, and refused when half of it is missing."""

import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.bootstrap.adapters.serving_pair import (
    PairReport,
    PairRequest,
    ensure_pair,
    ensure_pair_in_child,
    make_self_signed,
)

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def pem() -> tuple[bytes, bytes]:
    return make_self_signed("node-1", NOW)


def ask(directory: Path, *, self_signed: bool = True, checks_only: bool = False, client_ca: str = "") -> PairReport:
    return ensure_pair(
        PairRequest(
            certificate_file=str(directory / "kubelet.crt"),
            private_key_file=str(directory / "kubelet.key"),
            self_signed=self_signed,
            host_name="node-1",
            client_ca_file=client_ca,
            checks_only=checks_only,
        )
    )


def write(directory: Path, pem: tuple[bytes, bytes]) -> None:
    (directory / "kubelet.crt").write_bytes(pem[0])
    (directory / "kubelet.key").write_bytes(pem[1])


@pytest.mark.long
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
    assert ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == f"node-1-ca@{int(NOW.timestamp())}"
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert used_for(leaf) == {"digital_signature", "key_encipherment"}
    assert used_for(ca) == {"digital_signature", "key_encipherment", "key_cert_sign"}
    for certificate in (leaf, ca):
        assert certificate.public_key().key_size == 2048  # type: ignore[union-attr]
        assert 0 < certificate.serial_number < 2**63
    assert (NOW - leaf.not_valid_before_utc).total_seconds() == 3600
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 365
    assert b"BEGIN RSA PRIVATE KEY" in pem[1]


def used_for(certificate: x509.Certificate) -> set[str]:
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return {name for name in (*names, "key_cert_sign", "crl_sign") if getattr(usage, name)}


@pytest.mark.parametrize("host", ["192.0.2.7", "n" * 200])
def test_any_node_name_gets_a_certificate(host: str) -> None:
    leaf = x509.load_pem_x509_certificates(make_self_signed(host, NOW)[0])[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert host in [str(name.value) for name in names]


def test_a_missing_pair_is_made_and_then_kept(tmp_path: Path) -> None:
    first = ask(tmp_path / "pki")
    content = (tmp_path / "pki/kubelet.crt").read_bytes()
    assert first.created and not first.problems
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in (tmp_path / "pki").iterdir()) == ["kubelet.crt", "kubelet.key"]
    assert (tmp_path / "pki/kubelet.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "pki/kubelet.crt").stat().st_mode & 0o777 == 0o644
    assert not ask(tmp_path / "pki").created
    assert (tmp_path / "pki/kubelet.crt").read_bytes() == content
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        tmp_path / "pki/kubelet.crt", tmp_path / "pki/kubelet.key"
    )


def test_a_file_that_was_touched_after_the_pair_was_made_is_known(tmp_path: Path) -> None:
    certificate, key = tmp_path / "kubelet.crt", tmp_path / "kubelet.key"
    made = ask(tmp_path)
    assert made.is_still_made(certificate) and made.is_still_made(key)
    assert not ask(tmp_path).is_still_made(key)  # it was there before
    shutil.copy(certificate, tmp_path / "other")
    (tmp_path / "other").rename(certificate)
    assert not made.is_still_made(certificate) and made.is_still_made(key)
    while key.stat().st_ctime_ns == made.made[1].changed_ns:  # file times are some milliseconds apart
        key.write_bytes(key.read_bytes())
    assert not made.is_still_made(key)
    key.unlink()
    assert not made.is_still_made(key)


@pytest.mark.long
def test_an_expired_pair_is_used_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, make_self_signed("other", datetime(2001, 1, 1, tzinfo=UTC)))
    before = (tmp_path / "kubelet.crt").read_bytes()
    remark = f"{tmp_path}/kubelet.crt has expired on 2001-12-31 23:00:00 UTC (renew it)"
    assert ask(tmp_path) == PairReport(not_after="2001-12-31T23:00:00Z", remarks=(remark,))
    assert (tmp_path / "kubelet.crt").read_bytes() == before


@pytest.mark.parametrize("half", ["kubelet.crt", "kubelet.key"])
def test_half_a_pair_is_refused(tmp_path: Path, pem: tuple[bytes, bytes], half: str) -> None:
    write(tmp_path, pem)
    (tmp_path / half).unlink()
    [line] = ask(tmp_path).problems
    assert f"{half} is missing while" in line and "remove both" in line


def test_a_given_pair_is_never_made(tmp_path: Path) -> None:
    [line] = ask(tmp_path, self_signed=False).problems
    assert "does not exist (put both files there, or set neither)" in line
    assert list(tmp_path.iterdir()) == []


def test_a_check_accepts_what_a_start_completes_and_writes_nothing(tmp_path: Path, pem: tuple[bytes, bytes]) -> None:
    assert ask(tmp_path, checks_only=True) == PairReport() and list(tmp_path.iterdir()) == []
    write(tmp_path, pem)
    (tmp_path / "kubelet.crt").rename(tmp_path / ".kubelet.crt.pending")  # what a kill before the last step leaves
    assert ask(tmp_path, checks_only=True) == PairReport()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".kubelet.crt.pending", "kubelet.key"]
    assert not ask(tmp_path).problems


@pytest.mark.parametrize("half", ["kubelet.crt", "kubelet.key"])
def test_a_check_refuses_what_a_start_refuses(tmp_path: Path, pem: tuple[bytes, bytes], half: str) -> None:
    write(tmp_path, pem)
    (tmp_path / half).unlink()
    assert ask(tmp_path, checks_only=True) == ask(tmp_path) != PairReport()


@pytest.mark.parametrize("unset", ["certificate_file", "private_key_file"])
def test_one_file_of_two_set_is_no_pair_and_none_is_made(tmp_path: Path, unset: str) -> None:
    settings = {"certificate_file": str(tmp_path / "x.crt"), "private_key_file": str(tmp_path / "x.key"), unset: ""}
    request = PairRequest(**settings, self_signed=True, host_name="node-1", client_ca_file="")  # type: ignore[arg-type]
    assert ensure_pair(request) == PairReport()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["kubelet.crt", "kubelet.key"])
def test_a_file_that_cannot_be_read_is_refused_and_left_alone(
    tmp_path: Path, pem: tuple[bytes, bytes], file: str
) -> None:
    write(tmp_path, pem)
    (tmp_path / file).unlink()
    (tmp_path / file).mkdir()
    [line] = ask(tmp_path).problems
    assert f"{file}: Is a directory" in line
    assert (tmp_path / file).is_dir()


def test_an_encrypted_key_is_refused(tmp_path: Path, pem: tuple[bytes, bytes]) -> None:
    key = load_pem_private_key(pem[1], None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    write(tmp_path, (pem[0], secret))
    [line] = ask(tmp_path).problems
    assert f"{tmp_path}/kubelet.key holds no unencrypted PEM private key" in line


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
def test_a_crash_while_making_the_pair_is_repaired(tmp_path: Path, pem: tuple[bytes, bytes], moment: str) -> None:
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
        self_signed=True,
        host_name="node-1",
        client_ca_file="",
    )
    report = ensure_pair_in_child(request)
    assert (report.problems, report.not_after) == ((), "2026-06-01T11:00:00Z")
