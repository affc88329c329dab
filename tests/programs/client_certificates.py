"""Verifies client certificates as server does, with the interpreter that runs it: prints one JSON object.

Needs the standard library alone, so that every Python runs it. argv[1]: the directory that the test filled."""

import json
import ssl
import sys
from pathlib import Path

from services.server.adapters.client_certificates import ClientCertificates, ClientContext, UntrustedError

VERSIONS = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The server's end of a handshake in memory. Raises ssl.SSLError when either end refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)]
    for _ in range(10):  # flights
        finished = 0
        for end in ends:
            try:
                end.do_handshake()
                finished += 1
            except ssl.SSLWantReadError:
                pass
        if finished == len(ends):
            return ends[0]
    raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the handshake does not end")


def client_context(files: Path, name: str = "", version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """A client that offers the pair of this name, "" = none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if name:
        context.load_cert_chain(files / f"{name}.crt", files / f"{name}.key")
    return context


def server_context(files: Path, clients: ClientCertificates) -> ClientContext:
    """A server that requests client certificates."""
    context = ClientContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "serving.crt", files / "serving.key")
    clients.request_certificates(context)
    return context


def user(clients: ClientCertificates, connection: ssl.SSLObject | str) -> str:
    """The user's name, "" without a certificate, or why the certificate is not accepted."""
    if isinstance(connection, str):
        return connection
    try:
        found = clients.find_user(connection)
    except UntrustedError as error:
        return f"refused: {error}"
    return found.name if found else ""


def open_connection(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject | str:
    """The server's end, or why it refuses the client's certificate."""
    try:
        return handshake(server, client)
    except ssl.SSLCertVerificationError as error:
        return f"handshake: {error.verify_message}"


def main(files: Path) -> None:
    """Print who is let in, then who still is with another client CA file."""
    clients = ClientCertificates()
    ca, other = ((files / f"{name}.pem").read_bytes() for name in ("ca", "other-ca"))
    clients.trust(ca)
    server = server_context(files, clients)
    names = ("", "known", "chained", "stranger", "expired", "wrong-usage")
    connections = {
        f"{name} {version}".strip(): open_connection(server, client_context(files, name, number))
        for version, number in VERSIONS.items()
        for name in names
    }
    report: dict[str, object] = {"python": sys.version_info[:2], "openssl": ssl.OPENSSL_VERSION}
    for when, content in {"ca": ca, "more": ca + other, "other": other, "ca again": ca}.items():
        clients.trust(content)
        report[when] = {name: user(clients, connection) for name, connection in connections.items()}
    print(json.dumps(report))


main(Path(sys.argv[1]))
