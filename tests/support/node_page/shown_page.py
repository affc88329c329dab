"""The node page of a node with pods, in a browser: what its tests share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from services.server.controllers import node_state
from tests.service.server.main_listener import MainListener
from tests.support.node_page.browser import Page, browser
from tests.support.node_page.page_node import PageNode, add_hour

PODS = 110
ROWS = "document.querySelectorAll('#pods tbody tr').length"


@dataclass
class Shown:
    """The page of a node with pods, in a browser."""

    page: Page
    node: PageNode
    server: MainListener

    async def open(self, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        """Load the page and wait for its pods."""
        await self.page.show(width, height, scheme)
        await self.page.open(f"{self.server.url}/bulkhead/")
        await self.page.until(ROWS)
        return self.page


@asynccontextmanager
async def served(directory: Path, pods: int) -> AsyncIterator[tuple[PageNode, MainListener]]:
    """A node with so many pods and an hour of samples."""
    node = PageNode(directory)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(node_state, "_processes_of", node.shown_processes)
        async with node.listener(directory, pods) as server:
            add_hour(server.running.service.page.state, node.network.clock.wall())
            yield node, server


@asynccontextmanager
async def shown_page(directory: Path) -> AsyncIterator[Shown]:
    """A node with PODS pods, and a browser, which shows nothing yet."""
    async with served(directory, PODS) as (node, server), browser(directory / "profile") as page:
        yield Shown(page, node, server)


async def findings(page: Page, part: str = "html") -> list[dict[str, Any]]:
    """Return what axe finds in a part of the page, in short. Rows of pods are alike, and each takes a tenth of a
    second."""
    await page.value(resources.files("axe_core_python").joinpath("axe.min.js").read_text())
    checked = f"{{include: [['{part}']], exclude: [['#pods tbody tr:nth-child(n+9)']]}}"
    await page.value(f"axe.run({checked}).then(result => {{ window.checked = result; }})")
    assert await page.value("checked.passes.some(one => one.id === 'color-contrast') && checked.passes.length > 3")
    found = await page.value(
        "checked.violations.map(one => ({id: one.id, impact: one.impact, "
        "nodes: one.nodes.slice(0, 3).map(node => `${node.html} ${node.failureSummary}`)}))"
    )
    assert isinstance(found, list)
    return found
