"""A server that was just started is asked about a pod that runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.server.core.routes import ServedEndpoints
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Node, configuration, running
from tests.support.waits.deadline import WAIT_SECONDS

RUN = f"/run/{NAMESPACE}/{POD}/{CONTAINER}?cmd=true"


def _everything_served(debugging: bool, checks: tuple[str, ...], **more: Any) -> ServedEndpoints:
    return ServedEndpoints(True, checks, **more)


async def test_a_server_that_was_just_started_answers_once_it_knows_the_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _everything_served)
    monkeypatch.setattr("services.server.service._MAX_PODS_WAIT_SECONDS", 600)
    node = Node(complete=False)
    async with running(configuration(tmp_path), node) as server:
        monkeypatch.setattr(node.cri, "refuse_exec", lambda _: None)
        asked = asyncio.ensure_future(server.get(f"{server.read_only}{RUN}", "POST"))
        assert (await server.get(f"{server.read_only}/healthz"))[0] != 404, "what is not about pods is answered"
        await node.run_pod()
        for service in ("sources", "podsync"):
            node.mark_complete(service)
        await node.network.settle()
        assert not (await asyncio.wait({asked}, timeout=0.2))[0]
        node.mark_complete("pleg")
        await node.network.settle()
        assert (await asyncio.wait_for(asked, WAIT_SECONDS))[0] == 200


async def test_a_server_that_does_not_get_to_know_all_pods_answers_by_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _everything_served)
    monkeypatch.setattr("services.server.service._MAX_PODS_WAIT_SECONDS", 0.1)
    async with running(configuration(tmp_path), Node(complete=False)) as server:
        assert await server.get(f"{server.read_only}{RUN}", "POST") == (404, "pod does not exist")
