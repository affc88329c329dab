"""TLS: who is trusted, who we are, how both change, and what an operator reads when they do not fit."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from shared.kube.client import KubeClient
from shared.kube.interface import ApiUnreachableError
from tests.unit.kube.stand_in import StandIn, client_of, put_credentials, serving
from tests.unit.kube.tls_world import Authority, Pair, write_pair

CA, STRANGER = Authority(), Authority("stranger")
NODE = CA.issue("system:node:a", organization="system:nodes")


def server_context(directory: Path, pair: Pair, *, requires_certificate: bool = True) -> ssl.SSLContext:
    """A server's context."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*write_pair(pair, directory, "server"))
    if requires_certificate:
        context.load_verify_locations(cadata=CA.pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def good(_: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def test_a_client_certificate_is_shown_and_a_changed_one_followed(tmp_path: Path) -> None:
    other = CA.issue("system:node:b", organization="system:nodes")
    async with serving(server_context(tmp_path, CA.issue("api"))) as server, client_of(tmp_path) as client:
        server.handler = good
        for version, pair in enumerate((NODE, other), start=1):
            put_credentials(
                tmp_path,
                version,
                server.url,
                ca_file=CA.pem,
                client_certificate_file=pair.certificate,
                client_key_file=pair.key,
            )
            assert await client.get("/x") == {"ok": True}
            assert await client.get("/x") == {"ok": True}
    names = [peer["commonName"] for peer in server.peers]
    assert names == ["system:node:a"] * 2 + ["system:node:b"] * 2


async def test_an_intermediate_authority_alone_is_trusted(tmp_path: Path) -> None:
    intermediate = Authority("intermediate", under=CA)
    context = server_context(tmp_path, intermediate.issue("api"), requires_certificate=False)
    async with serving(context) as server, client_of(tmp_path) as client:
        server.handler = good
        put_credentials(tmp_path, 1, server.url, ca_file=intermediate.pem)
        assert await client.get("/x") == {"ok": True}


@pytest.mark.parametrize(
    ("server_pair", "fields", "line"),
    [
        (STRANGER.issue("api"), {"ca_file": CA.pem}, r"certificate is refused: .*\(compare certificate-authority-data"),
        (CA.issue("api", ends_in=-60), {"ca_file": CA.pem}, r"certificate has expired \(check this machine's clock"),
        (CA.issue("api"), {"ca_file": CA.pem, "tls_server_name": "else.test"}, r"else\.test.*set tls-server-name"),
        (CA.issue("api"), {"ca_file": b"no pem"}, r"the credentials cannot be used: "),
    ],
)
async def test_a_server_that_is_not_trusted(
    tmp_path: Path, server_pair: Pair, fields: dict[str, bytes | str], line: str
) -> None:
    context = server_context(tmp_path, server_pair, requires_certificate=False)
    async with serving(context) as server, client_of(tmp_path) as client:
        server.handler = good
        put_credentials(tmp_path, 1, server.url, **fields)
        with pytest.raises(ApiUnreachableError, match=line) as caught:
            await client.get("/x")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("127.0.0.1:")


async def test_a_server_name_and_a_switched_off_check_let_it_pass(tmp_path: Path) -> None:
    context = server_context(tmp_path, CA.issue("api"), requires_certificate=False)
    async with serving(context) as server, client_of(tmp_path) as client:
        server.handler = good
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem, tls_server_name="api.test")
        assert await client.get("/x") == {"ok": True}
        put_credentials(tmp_path, 2, server.url, insecure_skip_tls_verify=True)
        assert await client.get("/x") == {"ok": True}


async def test_a_client_certificate_the_server_does_not_know_names_the_remedy(tmp_path: Path) -> None:
    mine, context = STRANGER.issue("system:node:a"), server_context(tmp_path, CA.issue("api"))

    context.maximum_version = ssl.TLSVersion.TLSv1_2  # there the refusal is part of the handshake and never lost

    def refuse_all(listener: socket.socket) -> None:
        """A blocking server, for asyncio's own drops the alert that others send."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(ssl.SSLError):
                    context.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse_all, listener))
        put_credentials(
            tmp_path,
            1,
            f"https://127.0.0.1:{listener.getsockname()[1]}",
            ca_file=CA.pem,
            client_certificate_file=mine.certificate,
            client_key_file=mine.key,
        )
        async with client_of(tmp_path) as client:
            with pytest.raises(ApiUnreachableError, match=r"server refused the TLS connection.*client-certificate"):
                await client.get("/x")
        listener.shutdown(socket.SHUT_RDWR)
        await refusing


async def test_a_port_that_speaks_no_tls(server: StandIn, client: KubeClient, tmp_path: Path) -> None:
    server.handler = good
    put_credentials(tmp_path, 1, server.url.replace("http", "https"), ca_file=CA.pem)
    with pytest.raises(ApiUnreachableError, match=r"TLS failed: .*is it a TLS port"):
        await client.get("/x")


async def test_a_listener_that_never_speaks_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        put_credentials(tmp_path, 1, f"https://127.0.0.1:{listener.getsockname()[1]}", ca_file=CA.pem)
        async with client_of(tmp_path, timeout=0.1) as client:
            with pytest.raises(ApiUnreachableError, match="no answer in time"):
                await client.get("/x")
