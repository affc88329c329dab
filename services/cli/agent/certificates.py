"""`bulkhead certs` lists the certificates that the agent uses and trusts, when each expires, and whether it is renewed.

Reads the agent's own files and the stream `certificates` of bootstrap. No key is shown.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from msgspec import Struct, to_builtins

from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import write_report
from services.cli.terminal.table import duration, table, terminal_width
from shared.config.effective import EffectiveConfig
from shared.config.loader import load_effective
from shared.errors import OperatorError
from shared.kube.credentials import load_credentials
from shared.time.timestamps import local_text, parse_rfc3339, rfc3339

Write = Callable[[str], None]
STREAM = "certificates"
SHOWN, FAILED, EXPIRED = 0, 1, 3  # exit codes
_MAX_FILE_BYTES = 4 << 20
_MAX_CERTIFICATES = 500  # of one file; a bundle of all public authorities has 150


class CertificateRow(Struct, frozen=True, kw_only=True):
    """One certificate. `certificate`: client, serving, client CA, API server CA. Times are RFC 3339."""

    certificate: str
    subject: str
    not_before: str
    not_after: str
    expired: bool
    renewed: bool  # the agent renews it before it expires
    file: str


class CertificateSource(Struct, frozen=True, kw_only=True):
    """A file with certificates. `content`: the file that is read; `file`: the one that an operator replaces. Of a
    client or serving certificate the first one in the file counts, of authorities all (`complete`)."""

    certificate: str
    content: str
    file: str
    renewed: bool = False
    complete: bool = False


def list_certificates(run_dir: str, form: str, out: Write, err: Write) -> int:
    """Print the certificates, the first to expire first. Return the exit code."""
    rows: list[CertificateRow] = []
    problems: list[str] = []
    try:
        with local_agent(run_dir) as agent:
            sources = _sources(agent, load_effective(agent.run_dir))
    except (OperatorError, OSError) as error:
        err(str(error))
        return FAILED
    now = time.time()
    for source in sources:
        try:
            rows += read_rows(source, now)
        except OperatorError as error:
            problems.append(f"{source.certificate}: {error}")
    rows.sort(key=lambda row: row.not_after)
    lines = certificate_lines(rows, terminal_width(), now) if rows else ()
    write_report(form, [to_builtins(row) for row in rows], lines, out)
    for line in problems:
        err(line)
    if not rows and not problems:
        err("the agent uses no certificate")
    return FAILED if problems else EXPIRED if any(row.expired for row in rows) else SHOWN


def certificate_lines(rows: list[CertificateRow], width: int, now: float) -> list[str]:
    """Return a table of the certificates; `now`: wall seconds."""
    cells = [
        [
            row.certificate,
            local_text(row.not_after),
            "expired" if row.expired else duration((parse_rfc3339(row.not_after) or now) - now),
            "by the agent" if row.renewed else "no",
            row.subject,
            row.file,
        ]
        for row in rows
    ]
    return table(["CERTIFICATE", "EXPIRES", "LEFT", "RENEWED", "SUBJECT", "FILE"], cells, width, wraps=True)


def read_rows(source: CertificateSource, now: float) -> list[CertificateRow]:
    """Return the certificates of a file. `now`: wall seconds. Raises OperatorError for a file that cannot be used."""
    try:
        with Path(source.content).open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise OperatorError(f"is longer than {_MAX_FILE_BYTES} bytes", where=source.file, remedy="shorten it")
        found = x509.load_pem_x509_certificates(text)
        chosen = found[:_MAX_CERTIFICATES] if source.complete else found[:1]
        return [_row(source, one, now) for one in chosen]  # in a list, so that a bad field of a certificate raises here
    except OSError as error:
        remedy = "bulkhead logs --service bootstrap"
        raise OperatorError(f"cannot be read: {error.strerror}", where=source.file, remedy=remedy) from error
    except ValueError:
        raise OperatorError("holds no readable PEM certificate", where=source.file, remedy="replace it") from None


def _row(source: CertificateSource, certificate: x509.Certificate, now: float) -> CertificateRow:
    ends = certificate.not_valid_after_utc.timestamp()
    return CertificateRow(
        certificate=source.certificate,
        subject=certificate.subject.rfc4514_string(),
        not_before=rfc3339(certificate.not_valid_before_utc.timestamp()),
        not_after=rfc3339(ends),
        expired=ends <= now,
        renewed=source.renewed,
        file=source.file,
    )


def _sources(agent: Agent, config: EffectiveConfig) -> list[CertificateSource]:
    return [*_client_certificates(agent, config), *_server_certificates(agent.streams(STREAM)[STREAM], config)]


def _client_certificates(agent: Agent, config: EffectiveConfig) -> Iterator[CertificateSource]:
    """Yield the certificates that bootstrap took from the kubeconfig and the certificate store. Raises
    OperatorError."""
    if not config.joins_cluster:
        return
    try:
        known = load_credentials(agent.run_dir)
    except FileNotFoundError:  # the first certificate is still being requested
        return
    if known.client_certificate_file:
        store = f"{config.cert_dir}/kubelet-client-current.pem"
        file = store if config.rotate_certificates else config.kubeconfig
        yield CertificateSource(
            certificate="client",
            content=known.client_certificate_file,
            file=file,
            renewed=config.rotate_certificates,
        )
    if known.ca_file:
        yield CertificateSource(
            certificate="API server CA", content=known.ca_file, file=config.kubeconfig, complete=True
        )


def _server_certificates(published: dict[str, Any] | None, config: EffectiveConfig) -> Iterator[CertificateSource]:
    """Yield the certificates that server uses, as bootstrap published them; where bootstrap does not answer, as
    configured."""
    store = f"{config.cert_dir}/kubelet-server-current.pem"
    configured = store if config.server_tls_bootstrap else config.tls_cert_file
    serving = ((published or {}).get("serving") or {}).get("certificate_file") or (
        configured if published is None else ""
    )
    if serving:
        yield CertificateSource(
            certificate="serving", content=serving, file=serving, renewed=config.server_tls_bootstrap
        )
    if config.client_ca_file:
        yield CertificateSource(
            certificate="client CA", content=config.client_ca_file, file=config.client_ca_file, complete=True
        )
