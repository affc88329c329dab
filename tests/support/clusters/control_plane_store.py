"""Reads all that the etcd of a test's control plane holds, and puts it back, by etcd's gateway for JSON."""

import asyncio
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.support.waits.deadline import WAIT_SECONDS

Contents = Mapping[str, str]  # values by keys, both in base64

_EVERYTHING = {"key": "Lw==", "range_end": "MA=="}  # the keys that begin with "/"
# What an API server makes soon after it is ready, and when it is gone, again only after up to a minute.
_MADE_LATE = (
    *(f"/registry/namespaces/{name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system")),
    "/registry/services/specs/default/kubernetes",
)
_OPERATIONS = 100  # of one transaction; etcd takes 128


async def read_first(url: str) -> Contents:
    """Return what a new API server has put into the etcd at this URL, once it has put all there that it makes."""
    needed = {b64encode(key.encode()).decode() for key in _MADE_LATE}
    deadline = time.monotonic() + WAIT_SECONDS
    async with aiohttp.ClientSession(url) as session:
        while True:
            found = await _read(session)
            if found.keys() >= needed:
                return found
            assert time.monotonic() < deadline, f"etcd lacks some of {', '.join(_MADE_LATE)}"
            await asyncio.sleep(0.05)  # no event shows that the API server has made them


async def put_back(url: str, before: Contents) -> None:
    """Make the etcd at this URL hold `before`, which `read_first` returned, and nothing else. Watches see each change;
    finalizers and grace periods do not count."""
    deadline = time.monotonic() + WAIT_SECONDS
    async with aiohttp.ClientSession(url) as session:
        while operations := _differences(before, await _read(session)):
            assert time.monotonic() < deadline, f"somebody still writes to etcd: {operations}"
            for start in range(0, len(operations), _OPERATIONS):
                await _ask(session, "txn", {"success": operations[start : start + _OPERATIONS]})


def _differences(before: Contents, now: Contents) -> list[dict[str, Any]]:
    """Return the operations of transactions that lead from `now` to `before`."""
    gone = [{"requestDeleteRange": {"key": key}} for key in now.keys() - before.keys()]
    changed = [{"requestPut": {"key": key, "value": value}} for key, value in before.items() if now.get(key) != value]
    return [*gone, *changed]


async def _read(session: aiohttp.ClientSession) -> Contents:
    found = (await _ask(session, "range", _EVERYTHING)).get("kvs", [])
    return {one["key"]: one.get("value", "") for one in found}


async def _ask(session: aiohttp.ClientSession, what: str, request: Mapping[str, Any]) -> Any:
    async with session.post(f"/v3/kv/{what}", json=request, raise_for_status=True) as answer:
        return await answer.json()
