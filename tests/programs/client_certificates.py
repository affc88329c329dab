"""Verifies client certificates as server does, with the interpreter that runs it: prints one JSON object.

Needs the standard library alone, so that every Python runs it. argv[1]: the directory that the test filled."""

import json
import ssl
import sys
from pathlib import Path

from services.server.adapters.client_certificates import ClientCertificates, ClientContext, UntrustedError
from services.server.adapters.openssl import OpenSsl, find_openssl

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


def server_context(files: Path, clients: ClientCertificates, shown: bytes) -> ClientContext:
    """A server that requests client certificates and shows the names of the CAs in `shown` (PEM)."""
    context = ClientContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "serving.crt", files / "serving.key")
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    clients.ask_for(context, shown)
    return context


def user(clients: ClientCertificates, connection: ssl.SSLObject) -> str:
    """The user's name, "" without a certificate, or why the certificate is not accepted."""
    try:
        found = clients.user_of(connection)
    except UntrustedError as error:
        return f"refused: {error}"
    return found.name if found else ""


def allowed_groups(openssl: OpenSsl, files: Path, clients: ClientCertificates, shown: bytes) -> list[str]:
    """Of two key exchange groups, those that a server restricted to the first one accepts."""
    server, accepted = server_context(files, clients, shown), []
    openssl.allow_groups(server, ["X25519"])
    for group in ("X25519", "prime256v1"):
        client = client_context(files)
        openssl.allow_groups(client, [group])
        try:
            handshake(server, client)
            accepted.append(group)
        except ssl.SSLError:
            pass
    return accepted


def main(files: Path) -> None:
    """Print what this interpreter's OpenSSL answers; "reached" is False where `find_openssl` returns None."""
    openssl = find_openssl()
    report: dict[str, object] = {
        "python": sys.version_info[:2],
        "openssl": ssl.OPENSSL_VERSION,
        "reached": bool(openssl),
    }
    if openssl is not None:
        clients, ca, other = (
            ClientCertificates(openssl),
            *((files / f"{n}.pem").read_bytes() for n in ("ca", "other-ca")),
        )
        clients.trust(ca)
        server = server_context(files, clients, ca)
        names = ("", "known", "chained", "stranger", "expired", "wrong-usage")
        open_connections = {
            f"{name} {version}".strip(): handshake(server, client_context(files, name, number))
            for version, number in VERSIONS.items()
            for name in names
        }
        report["users"] = {name: user(clients, connection) for name, connection in open_connections.items()}
        clients.trust(other)
        report["users after the CA changed"] = {name: user(clients, one) for name, one in open_connections.items()}
        report["groups"] = allowed_groups(openssl, files, clients, ca)
        known = ssl.PEM_cert_to_DER_cert((files / "known.crt").read_text())
        report["not after"] = openssl.not_after(known)
        authority = ssl.create_default_context(cafile=files / "ca.pem")
        report["of garbage"] = openssl.why_not_client(authority, [b"garbage"])
        # Nothing is freed twice and nothing is kept: the process survives, and its memory does not grow.
        for _ in range(2000):
            openssl.why_not_client(authority, [known, known])
    print(json.dumps(report))


main(Path(sys.argv[1]))
