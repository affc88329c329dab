"""The connection that watches share is dialled: how long a request waits for it, and when it is given up."""

import asyncio
from pathlib import Path

import pytest

from shared.kube import dialing
from shared.kube.interface import ApiUnreachableError
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.kube.http2_stand_in import CA, serving_http2, until
from tests.unit.kube.http2_watch import Watch
from tests.unit.kube.stand_in import client_of, put_credentials


async def test_a_dial_ends_with_its_time_limit_for_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        monkeypatch.setattr(dialing, "CONNECT_TIMEOUT_SECONDS", 0.3)
        server.silent = True
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem)
        given_up = Watch(client, "impatient", opened_within=0.05)
        watches = [Watch(client, f"w{number}") for number in range(10)]
        for watch in (given_up, *watches):
            with pytest.raises(ApiUnreachableError, match="no answer in time") as caught:
                await watch.task
            assert caught.value.is_outage
        assert len(server.connections) == 1
        monkeypatch.setattr(dialing, "CONNECT_TIMEOUT_SECONDS", WAIT_SECONDS)
        server.silent = False
        watch = Watch(client, opened_within=WAIT_SECONDS)
        await watch.opened.wait()
        await watch.cancel()


async def test_a_dial_that_no_request_waits_for_any_more_is_given_up(tmp_path: Path) -> None:
    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        server.silent = True
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem)
        before = [Watch(client, name) for name in "ab"]
        await until(lambda: len(server.connections) == 1)
        for watch in before:
            await watch.cancel()
        server.silent = False
        after = Watch(client)
        await asyncio.wait_for(after.opened.wait(), WAIT_SECONDS)  # the dial before would end after 5 s
        await after.cancel()


async def test_an_untrusted_server_reads_as_over_http1(tmp_path: Path) -> None:
    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        for fields, line in (
            ({}, r"certificate is refused: .*\(compare certificate-authority-data"),
            ({"ca_file": CA.pem, "tls_server_name": "else.test"}, r"else\.test.*set tls-server-name"),
        ):
            put_credentials(tmp_path, 1, server.url, **fields)
            for _ in range(2):
                with pytest.raises(ApiUnreachableError, match=line):
                    await Watch(client).task
        for url in ("https://127.0.0.1:1", "https://name.invalid"):
            put_credentials(tmp_path, 3, url, ca_file=CA.pem)
            with pytest.raises(ApiUnreachableError) as by_http1:
                await client.get("/x")
            with pytest.raises(ApiUnreachableError) as by_http2:
                await Watch(client).task
            assert str(by_http2.value) == str(by_http1.value) and by_http2.value.is_outage
