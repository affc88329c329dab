"""Which serving pair is shown: given, issued by the API server, or none at all; and files that are no good."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from services.server.adapters.tls import ServingTls
from services.server.adapters.tls_files import BadFileError, read_authority
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from tests.process.tls_site import (
    Authority,
    Connection,
    Site,
    handshake,
    key_pem,
    s_client,
    served_name,
    until_accepted,
    until_served,
)
from tests.service.server.running import configuration
from tests.support.waits.deadline import WAIT_SECONDS

NO_FILES = {"tls_cert_file": "", "tls_private_key_file": ""}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad file is reported sooner."""
    monkeypatch.setattr("services.server.adapters.tls._HALF_DONE_SECONDS", 0.2)


def issue(site: Site, name: str, days: float = 1) -> None:
    """What bootstrap does with a certificate that the API server issued."""
    certificate, key = site.serving_ca.make(name, server=True, days=days)
    folder = site.directory / "pki"
    folder.mkdir(exist_ok=True)
    content = certificate.public_bytes(Encoding.PEM) + site.serving_ca.pem + key_pem(key)
    target = folder / f"kubelet-server-{name}.pem"
    target.write_bytes(content)
    updated = folder / "kubelet-server-updated.pem"
    updated.symlink_to(target)
    updated.rename(folder / "kubelet-server-current.pem")


async def test_the_issued_pair_follows_the_seeds_and_its_rotation_cuts_no_connection(site: Site) -> None:
    async with site.running(server_tls_bootstrap=True) as server:
        connection = await Connection.open(server, site.client(site.admin)["ssl"])
        assert connection.shown == "node-1"
        for name in ("issued", "rotated"):  # the folder is not there before the first
            issue(site, name)
            await until_served(site, server, name)
            assert await connection.status() == 200
        site.renew("new-seeds")
        (site.directory / "pki/kubelet-server-current.pem").unlink()
        issue(site, "rotated-again")  # an event after the others: those have been seen when this one counts
        await until_served(site, server, "rotated-again")
        await connection.close()


async def test_without_seeds_handshakes_get_an_alert_until_a_pair_is_issued(site: Site) -> None:
    async with site.running(server_tls_bootstrap=True, **NO_FILES) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert await handshake(server, site.client(None, version)["ssl"]) == "TLSV1_ALERT_INTERNAL_ERROR"
        code, output = await s_client(server)
        assert code != 0
        assert "alert internal error" in output
        issue(site, "issued")
        await until_served(site, server, "issued")


@pytest.mark.parametrize("missing", ["tls_cert_file", "tls_private_key_file"])
async def test_half_of_the_settings_is_no_certificate_and_the_listener_stays(
    site: Site, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.running(**{missing: ""}) as server:
        assert await handshake(server, site.client()["ssl"]) == "TLSV1_ALERT_INTERNAL_ERROR"
        [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert line.startswith("no serving certificate available") and "both tlsCertFile and tlsPrivateKeyFile" in line
        assert await handshake(server, site.client()["ssl"]) == "TLSV1_ALERT_INTERNAL_ERROR"


async def test_the_file_names_of_an_older_store_are_the_last_that_count(site: Site) -> None:
    (site.directory / "pki").mkdir()
    site.serving_ca.issue(site.directory / "pki/kubelet-server", "older", server=True)
    async with site.running(server_tls_bootstrap=True, **NO_FILES) as server:
        assert await served_name(site, server) == "older"
    async with site.running(server_tls_bootstrap=True) as server:
        assert await served_name(site, server) == "node-1"


async def test_an_issued_pair_that_has_expired_is_none_and_a_given_one_is_shown(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    issue(site, "expired", days=-1)
    async with site.running(server_tls_bootstrap=True) as server:
        assert await handshake(server, site.client()["ssl"]) == "TLSV1_ALERT_INTERNAL_ERROR"
        assert "kubelet-server-current.pem has expired on" in caplog.text
        issue(site, "issued")
        await until_served(site, server, "issued")
    site.serving_ca.issue(site.serving, "old-node", server=True, days=-1)
    async with site.running() as server:
        unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        assert await handshake(server, unchecked) == ""
        assert "serving.crt has expired on" in caplog.text


async def test_an_issued_pair_that_ends_while_it_is_shown_is_shown_no_more(site: Site) -> None:
    now = [0.0]
    certificate, _ = site.serving_ca.make("x", server=True)
    issue(site, "issued")
    config = configuration(site.directory, server_tls_bootstrap=True)
    tls = ServingTls(config, wall=lambda: now[0])

    def alert() -> str:
        client_in, server_in = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = site.client()["ssl"].wrap_bio(client_in, server_in, server_hostname="127.0.0.1")
        server = tls.context.wrap_bio(server_in, client_in, server_side=True)
        for side in (client, server):
            with pytest.raises(ssl.SSLWantReadError):
                side.do_handshake()
        try:
            client.do_handshake()
        except ssl.SSLError as error:
            return error.reason
        return ""

    assert alert() == ""
    now[0] = certificate.not_valid_after_utc.timestamp() + 60
    assert alert() == "TLSV1_ALERT_INTERNAL_ERROR"


async def test_a_corrupt_issued_pair_is_reported_and_the_seeds_or_the_old_one_stay_in_use(
    site: Site, caplog: pytest.LogCaptureFixture, impatient: None
) -> None:
    (site.directory / "pki").mkdir()
    current = site.directory / "pki/kubelet-server-current.pem"
    current.write_bytes(b"torn")
    async with site.running(server_tls_bootstrap=True) as server:
        assert await served_name(site, server) == "node-1"
        assert f"{current} holds no complete PEM certificate (replace it)" in caplog.text
        issue(site, "issued")
        await until_served(site, server, "issued")
        site.renew("new-seeds")
        current.unlink()
        current.write_bytes(b"torn again")
        await until_logged(caplog, f"{current} holds no complete PEM certificate", times=2)
        assert await served_name(site, server) == "issued"


async def until_logged(caplog: pytest.LogCaptureFixture, text: str, times: int = 1) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while caplog.text.count(text) < times:
            await asyncio.sleep(0.01)


def other_key(site: Site) -> bytes:
    return key_pem(site.serving_ca.make("x", server=True)[1])


def encrypted(site: Site) -> bytes:
    return key_pem(site.serving_ca.make("x", server=True)[1], b"password")


def half(site: Site) -> bytes:
    return site.serving.with_suffix(".key").read_bytes()[:100]


def garbage(_site: Site) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"


def one_damaged(site: Site) -> bytes:
    return site.serving_ca.pem + b"-----BEGIN CERTIFICATE-----\nMP//\n-----END CERTIFICATE-----\n"


def empty_block(_site: Site) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def crl(site: Site) -> bytes:
    now, ca = datetime.now(UTC), site.serving_ca
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.certificate.subject).last_update(now)
    return builder.next_update(now + timedelta(days=1)).sign(ca.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def trusted(site: Site) -> bytes:
    return site.serving_ca.pem.replace(b"BEGIN CERTIFICATE", b"BEGIN TRUSTED CERTIFICATE").replace(
        b"END CERTIFICATE", b"END TRUSTED CERTIFICATE"
    )


def nothing(_site: Site) -> bytes:
    return b""


BAD: list[tuple[str, Callable[[Site], bytes] | None, str]] = [
    ("serving.crt", None, "No such file or directory"),
    ("serving.key", None, "No such file or directory"),
    ("serving.crt", nothing, "holds no complete PEM certificate"),
    ("serving.crt", garbage, "serving.crt"),
    ("serving.key", half, "holds no complete PEM private key"),
    ("serving.key", other_key, "the key is not the one of the certificate"),
    ("serving.key", encrypted, "is encrypted"),
    ("client-ca.crt", None, "No such file or directory"),
    ("client-ca.crt", nothing, "is empty"),
    ("client-ca.crt", garbage, "client-ca.crt"),
    ("client-ca.crt", one_damaged, "a certificate in it cannot be read"),
    ("client-ca.crt", empty_block, "a certificate in it cannot be read"),
    ("client-ca.crt", crl, "no certificate in it"),
    ("client-ca.crt", trusted, "client-ca.crt"),
]
NAMES = [f"{name} {content.__name__ if content else 'gone'}" for name, content, _ in BAD]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=NAMES)
async def test_a_file_that_goes_bad_is_one_line_and_changes_nothing_until_it_is_good(
    site: Site,
    name: str,
    content: Callable[[Site], bytes] | None,
    message: str,
    caplog: pytest.LogCaptureFixture,
    impatient: None,
) -> None:
    caplog.set_level(logging.INFO)
    file = site.directory / name
    async with site.running() as server:
        connection = await Connection.open(server, site.client(site.admin)["ssl"])
        assert await connection.status() == 200
        good = file.read_bytes()
        bad = content(site) if content else b""
        if content:
            write_atomically(file, bad, 0o600)
        else:
            file.unlink()
        await until_logged(caplog, message)
        file.touch() if content else (site.directory / "else").touch()  # read again, and not reported again
        assert await served_name(site, server) == "node-1"
        assert await connection.status() == 200
        again = await Connection.open(server, site.client(site.admin)["ssl"])
        assert await again.status() == 200
        write_atomically(file, good, 0o600)
        await until_logged(caplog, "the TLS files are good again")
        ours = [record for record in caplog.records if record.name.startswith("services.")]
        [line] = [record.getMessage() for record in ours if record.levelno >= logging.ERROR]
        assert message in line and "\n" not in line and "PRIVATE" not in line
        site.renew("node-1-renewed")
        await until_served(site, server, "node-1-renewed")
        for each in (connection, again):
            assert await each.status() == 200
            await each.close()


async def test_a_pipe_in_place_of_a_file_keeps_nothing_else_from_counting(
    site: Site, caplog: pytest.LogCaptureFixture, impatient: None
) -> None:
    async with site.running() as server:
        authority = Path(site.client_ca_file)
        authority.unlink()
        os.mkfifo(authority)
        await until_logged(caplog, "is a pipe")
        site.renew("node-1-renewed")
        await until_served(site, server, "node-1-renewed")


def test_a_directory_in_place_of_a_file_is_one_line_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        with pytest.raises(BadFileError, match="Is a directory"):
            read_authority(str(tmp_path))
    assert len([*Path("/proc/self/fd").iterdir()]) == before


async def test_a_bad_pair_does_not_keep_a_new_client_ca_from_counting(site: Site) -> None:
    new_ca = Authority("new clients")
    new_admin = new_ca.issue(site.directory / "new-admin", "api-server", "system:masters")
    async with site.running() as server:
        site.serving.with_suffix(".key").write_bytes(other_key(site))
        new_ca.write(Path(site.client_ca_file))
        await (await until_accepted(site, server, new_admin)).close()
        assert await served_name(site, server) == "node-1"


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=NAMES)
async def test_a_start_with_a_bad_file_ends_with_one_line(
    site: Site, name: str, content: Callable[[Site], bytes] | None, message: str
) -> None:
    bad = content(site) if content else b""
    (site.directory / name).unlink()
    if content:
        (site.directory / name).write_bytes(bad)
    with pytest.raises(OperatorError) as failed:
        async with site.running():
            pass
    line = str(failed.value)
    assert message in line and "\n" not in line
    what = "unable to load client CA file" if name == "client-ca.crt" else "cannot use the serving pair"
    assert what in line and str(site.directory / name) in line


async def test_a_pair_replaced_one_file_after_the_other_is_not_worth_a_line(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.server.adapters.tls._HALF_DONE_SECONDS", 60.0)
    async with site.running() as server:
        certificate, key = site.serving_ca.make("node-1-renewed", server=True)
        site.serving.with_suffix(".crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        await asyncio.sleep(0.2)
        site.serving.with_suffix(".key").write_bytes(key_pem(key))
        await until_served(site, server, "node-1-renewed")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
