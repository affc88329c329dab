"""The main listener over real TLS, asked by Python, curl and openssl: who is let in by which client certificate."""

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.process.tls_site import Authority, Connection, Site, run, s_client
from tests.service.server.running import POD
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_client_certificate_of_the_ca_is_let_in(site: Site) -> None:
    async with site.running() as server:
        await server.node.run_pod()
        status, body = await server.get(server.main + "/pods", **site.client(site.admin))
        assert status == 200
        assert json.loads(body)["items"][0]["metadata"]["name"] == POD
        status, body = await server.get(server.main + "/runningpods/", **site.client(site.admin))
        assert json.loads(body)["items"][0]["metadata"]["name"] == POD
        status, body = await server.get(server.main + "/healthz", **site.client(site.admin))
        assert (status, body) == (200, "ok")
        status, body = await server.get(server.main + "/configz", **site.client(site.admin))
        assert json.loads(body)["kubeletconfig"]["kind"] == "KubeletConfiguration"


async def test_without_a_certificate_the_answer_is_unauthorized(site: Site) -> None:
    async with site.running() as server:
        for path in ("/pods", "/healthz", "/pods/x", "/containerLogs/a/b/c"):
            assert await server.get(server.main + path, **site.client()) == (401, "Unauthorized")
        assert await server.get(server.main + "/", **site.client()) == (404, "404 page not found\n")


async def test_anonymous_access_where_it_is_allowed(site: Site) -> None:
    async with site.running(anonymous_auth=True, webhook_authentication=True) as server:
        assert (await server.get(server.main + "/pods", **site.client()))[0] == 200
        bad_token = {"headers": {"Authorization": "Bearer x"}, **site.client()}
        assert await server.get(server.main + "/pods", **bad_token) == (401, "Unauthorized")


async def test_webhook_authorization_without_an_api_server_cannot_decide(site: Site) -> None:
    async with site.running(authorization_mode="Webhook") as server:
        text = "Authorization error (user=api-server, verb=get, resource=nodes, subresource=pods)"
        assert await server.get(server.main + "/pods", **site.client(site.admin)) == (500, text)


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_certificate_that_the_client_ca_has_not_signed_gets_401(site: Site, version: ssl.TLSVersion) -> None:
    stranger = Authority("stranger").issue(site.directory / "stranger", "api-server", "system:masters")
    expired = site.client_ca.issue(site.directory / "expired", "api-server", days=-1)
    wrong_usage = site.client_ca.issue(site.directory / "usage", "api-server", server=True)
    async with site.running(anonymous_auth=True) as server:
        for pair in (stranger, expired, wrong_usage):
            answer = await server.get(server.main + "/pods", **site.client(pair, version))
            assert answer == (401, "Unauthorized"), pair
        assert (await server.get(server.main + "/pods", **site.client(site.admin, version)))[0] == 200
        assert (await server.get(server.main + "/pods", **site.client(None, version)))[0] == 200


@pytest.mark.parametrize("version", VERSIONS)
async def test_intermediates_count_that_the_client_sends_or_the_ca_file_holds(
    site: Site, version: ssl.TLSVersion
) -> None:
    between = Authority("between", under=site.client_ca)
    alone = between.issue(site.directory / "alone", "api-server", "system:masters")
    with_chain = between.issue(site.directory / "with_chain", "api-server", "system:masters")
    with with_chain.with_suffix(".crt").open("ab") as chain:
        chain.write(between.pem)
    async with site.running() as server:
        assert (await server.get(server.main + "/pods", **site.client(with_chain, version)))[0] == 200
        assert (await server.get(server.main + "/pods", **site.client(alone, version)))[0] == 401
    between.write(Path(site.client_ca_file))  # no self-signed certificate in the file: an anchor all the same
    async with site.running() as server:
        assert (await server.get(server.main + "/pods", **site.client(alone, version)))[0] == 200
        assert (await server.get(server.main + "/pods", **site.client(site.admin, version)))[0] == 401


async def test_a_certificate_that_ends_during_a_connection_counts_no_more(site: Site) -> None:
    async with site.running() as server:
        brief = site.client_ca.issue(site.directory / "brief", "api-server", days=10 / 86400)
        connection = await Connection.open(server, site.client(brief)["ssl"])
        assert await connection.status() == 200
        async with asyncio.timeout(WAIT_SECONDS):
            while await connection.status() == 200:
                await asyncio.sleep(0.2)
        assert await connection.status() == 401
        await connection.close()


async def test_clients_get_the_names_of_the_accepted_authorities(site: Site) -> None:
    async with site.running() as server:
        _, output = await s_client(server)
        assert "Acceptable client certificate CA names\nCN = clients\n" in output
    async with site.running(client_ca_file="") as server:
        _, output = await s_client(server)
        assert "No client certificate CA names sent" in output


async def test_a_session_resumed_after_the_client_ca_changed_is_verified_again(site: Site) -> None:
    # TLS 1.2 resumes by session id, which the ssl module cannot turn off on the server's side.
    context = site.client(site.admin, ssl.TLSVersion.TLSv1_2)["ssl"]
    async with site.running() as server:

        def ask(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bytes]:
            with (
                socket.create_connection(("127.0.0.1", server.config.port)) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as tls,
            ):
                tls.sendall(b"GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return tls.session, tls.recv(65536)

        session, answer = await asyncio.to_thread(ask, None)
        assert b" 200 " in answer
        Authority("new clients").write(Path(site.client_ca_file))
        async with asyncio.timeout(WAIT_SECONDS):
            while b" 401 " not in answer:
                session, answer = await asyncio.to_thread(ask, session)


async def test_curl_and_openssl_agree(site: Site) -> None:
    async with site.running(tls_cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)) as server:
        pair = ["--cert", f"{site.admin}.crt", "--key", f"{site.admin}.key"]
        curl = ["curl", "-sS", "--cacert", site.serving_ca_file, "-w", "\n%{http_code} %{http_version}"]
        assert await run(*curl, *pair, server.main + "/healthz") == (0, "ok\n200 1.1")
        assert await run(*curl, server.main + "/healthz") == (0, "Unauthorized\n401 1.1")
        assert (await run(*curl, *pair, "-I", "-X", "HEAD", server.main + "/pods"))[1].endswith("405 1.1")
        _, output = await s_client(server, "-alpn", "h2,http/1.1", "-tls1_2")
        assert "ALPN protocol: http/1.1" in output
        assert "ECDHE-ECDSA-AES256-GCM-SHA384" in output


@pytest.mark.parametrize(
    "scenario",
    [
        test_a_client_certificate_of_the_ca_is_let_in,
        test_a_certificate_that_ends_during_a_connection_counts_no_more,
        test_a_session_resumed_after_the_client_ca_changed_is_verified_again,
    ],
)
def test_the_loop_that_services_run_on_does_the_same(
    site: Site, scenario: Callable[[Site], Coroutine[Any, Any, None]]
) -> None:
    # uvloop has a TLS implementation of its own.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(site))
