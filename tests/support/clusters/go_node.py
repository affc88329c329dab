"""A node of a control plane that a Go kubelet and this agent have in turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.agents import Bulkhead, GoKubelet
from bench.site import Site
from tools.clean import remove_pods


@asynccontextmanager
async def go_node(
    folder: Path, name: str, kind: type[GoKubelet] = GoKubelet
) -> AsyncIterator[tuple[Site, GoKubelet, Bulkhead]]:
    """Yield a control plane with a runtime, a Go kubelet for the node of this name, which is not started yet, and an
    agent that shares its home. Both are ended, and their pods removed, when the block ends."""
    async with Site(folder) as site:
        given: dict[str, Any] = {
            "node": name,
            "kubeconfig": site.plane.kubeconfig_for_node(name),
            "client_ca": site.plane.ca_file,
            "endpoint": site.containerd.endpoint,
        }
        go = kind(folder=folder, **given)
        try:
            bulkhead = Bulkhead(**given, home=go.home)
            try:
                yield site, go, bulkhead
            finally:
                await asyncio.to_thread(bulkhead.stop)
        finally:
            await asyncio.to_thread(go.stop)
            await remove_pods(site.containerd.endpoint)
            go.remove()
