"""The node page in Chromium: conditions, resources, what pods use, and the logs of containers."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.node_page.browser import Page
from tests.support.node_page.page_node import HOSTILE
from tests.support.node_page.shown_page import PODS, ROWS, Shown, findings, shown_page

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

LINE = '<img src=x onerror="document.title=1">'
LOG = "document.querySelector('#story-body pre')"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    async with shown_page(tmp_path_factory.mktemp("node")) as shown:
        yield shown


async def texts(page: Page, table: str) -> list[list[str]]:
    """The cells of a table; a space within an amount is one."""
    rows = f"[...byId('{table}').tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
    return [[cell.replace("\u00a0", " ") for cell in row] for row in await page.value(rows)]


async def open_log(page: Page, uid: str, container: str = "main") -> None:
    """Open the dialog of the pod, and press the button of this log."""
    await page.value("byId('story').close()")
    await page.until("story === null")
    await page.value(f"openStory('{uid}')")
    await page.value(f"document.querySelector('#story-views [data-container={container}]').click()")


async def test_conditions_resources_and_filesystems_have_units_and_shares(shown: Shown) -> None:
    page = await shown.open()
    assert (await texts(page, "conditions"))[1] == [
        "DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", "26h",
    ]  # fmt: skip
    cpu, memory, storage, pods = await texts(page, "resources")
    assert cpu == ["cpu", "0.42 cores (11 %)", "2.74 cores (72 %)", "3.80 cores", "4.00 cores"]
    assert memory == ["memory", "3.0 GiB (38 %)", "4.3 GiB (61 %)", "7.0 GiB", "8.0 GiB"]
    assert storage[1] == "28 GiB (35 %)" and pods[1:3] == ["-", f"{PODS} (100 %)"]
    assert await texts(page, "filesystems") == [
        ["nodefs", "28 GiB (35 %)", "48 GiB", "80 GiB", "342880 (7 %)"],
        ["imagefs", "9.0 GiB (11 %)", "48 GiB", "80 GiB", "120000 (2 %)"],
    ]


async def test_a_condition_that_is_bad_and_rates_of_interfaces_appear_without_a_reload(shown: Shown) -> None:
    page, state = await shown.open(), shown.server.running.service.page.state
    kind = "byId('conditions').tBodies[0].rows[0].cells[1].className"
    assert await page.value(kind) == "state good"
    await page.value("takeChange({conditions: [{type: 'Ready', status: 'False', reason: '', message: '', since: ''}]})")
    assert await page.value(kind) == "state bad" and (await texts(page, "conditions"))[0][4] == "-"
    shown.node.use_node()  # rates are those since this reading, however long ago the first one was
    await shown.node.network.settle()
    await state.sample()
    shown.node.network.clock.advance(10)
    shown.node.use_node(10)
    await shown.node.network.settle()
    await state.sample()
    await page.until("state.machine.network[0]?.received")
    card, bridge = await texts(page, "network")
    assert card[0] == "eth0" and re.fullmatch(r"\d\.\d MiB/s", card[1]) and card[3:] == ["0", "3"]
    assert bridge[0:2] == ["bulkhead0", "0 B/s"]


async def test_pods_show_what_they_use_and_are_sorted_by_it(shown: Shown) -> None:
    page = await shown.open()
    await page.until("state.usage['uid-1']")
    cells = "[...document.querySelector('[data-uid=uid-1]').cells].slice(3, 6).map(cell => cell.textContent)"
    assert await page.value(cells) == ["10m", "31 MiB", "2.0 MiB"]
    await page.value("document.querySelector('[data-sort=memory]').click()")
    memories = "[...byId('pods').tBodies[0].rows].map(row => state.usage[row.dataset.uid]?.[1] ?? -1)"
    found = await page.value(memories)
    assert found == sorted(found, reverse=True) and len(found) == PODS and found[-3:] == [-1, -1, -1]
    await page.value("source.close(); takeChange({usage: {'uid-9': [0.5, 2 ** 40, null]}})")
    first = "[...byId('pods').tBodies[0].rows[0].cells].slice(3, 6).map(cell => cell.textContent)"
    assert await page.value(first) == ["500m", "1.0 TiB", "-"]
    assert await page.value(ROWS) == PODS


async def test_the_end_of_a_log_is_shown_as_text_on_demand(shown: Shown) -> None:
    shown.node.write_log(1, [f"line {number} {LINE}\x1b[31m red\x1b[0m" for number in range(500)])
    shown.page.requests.clear()
    page = await shown.open()
    await open_log(page, "uid-1")
    lines = (await page.until(f"{LOG}?.textContent")).splitlines()
    assert len(lines) == 200 and lines[-1] == f"line 499 {LINE} red"
    assert await page.value(f"{LOG}.children.length") == 0 and await page.value("document.title") != "1"
    bottom = "(body => body.scrollHeight - body.scrollTop - body.clientHeight)(byId('story-body'))"
    assert await page.value("byId('story-body').scrollTop") > 0 and await page.value(bottom) <= 1
    assert len([url for url in page.requests if "/containerLogs/" in url]) == 1  # and none before the button
    shown.node.put_pod(1, restarts=0)
    await page.value("showPod('uid-1')")  # a change of the pod
    assert await page.value(f"{LOG} !== null")
    await page.value("document.querySelector('#story-views button').click()")
    await page.until("document.querySelectorAll('#story-body li').length > 1")
    assert page.problems == []


@pytest.mark.parametrize(
    ("path", "button", "content"),
    [
        ("*/containerLogs/*", "[data-container=main]", "last words"),
        ("*/explain/*", "button", "image registry.example"),
    ],
)
async def test_a_request_without_an_answer_is_sent_again_while_its_view_is_open(
    shown: Shown, path: str, button: str, content: str
) -> None:
    shown.node.write_log(1, ["last words"])
    page = await shown.open()
    await open_log(page, "uid-1")
    try:
        await page.send("Network.setBlockedURLs", urls=[path])
        await page.value(f"document.querySelector('#story-views {button}').click()")
        await page.until("byId('story-body').textContent === 'The node does not answer; trying again.'")
    finally:
        await page.send("Network.setBlockedURLs", urls=[])
    await page.until(f"byId('story-body').textContent.includes('{content}')")
    page.problems.clear()  # the blocked requests are some


async def test_a_story_that_is_opened_at_the_moment_at_which_another_is_closed_is_shown(shown: Shown) -> None:
    page = await shown.open()
    await open_log(page, "uid-1")
    await page.value("byId('story').close(); openStory('uid-4')")
    await page.until("document.querySelectorAll('#story-body li').length > 1")
    assert await page.value("story") == "uid-4"


async def test_a_log_of_long_lines_shows_the_newest_that_fit(shown: Shown) -> None:
    shown.node.write_log(4, [f"{number} {'x' * 3000}" for number in range(300)])
    page = await shown.open()
    await open_log(page, "uid-4")
    lines = (await page.until(f"{LOG}?.textContent")).splitlines()
    assert lines[-1].startswith("299 ") and len(lines) == 12 and sum(map(len, lines)) < 1 << 16
    assert await page.value("document.querySelector('#story-body p').textContent") == "The newest lines, at most 12."
    shown.node.write_log(6, [f"{number} {'y' * 100_000}" for number in range(3)], "proxy")
    await open_log(page, "uid-6", "proxy")
    assert (await page.until(f"{LOG}?.textContent")).startswith("2 y")
    assert len(await page.value(f"{LOG}.textContent")) == 1 << 16


async def test_a_container_without_a_log_shows_why_and_a_hostile_name_is_one_segment_of_the_path(shown: Shown) -> None:
    shown.page.problems.clear()
    shown.node.write_log(0, [])
    page = await shown.open()
    await open_log(page, "uid-0")
    await page.until("byId('story-body').textContent === 'The container has written nothing yet.'")
    await open_log(page, "uid-3")
    await page.until("byId('story-body').textContent.includes('waiting to start: trying and failing to pull image')")
    page.requests.clear()
    await open_log(page, "uid-2", "proxy")
    await page.until("byId('story-body').textContent !== 'Loading'")
    (url,) = [url for url in page.requests if "/containerLogs/" in url]
    name = "%3Cscript%3Edocument.title%3D'run'%3C%2Fscript%3E"
    assert url.startswith(f"{shown.server.url}/containerLogs/shop/{name}/proxy?tailLines=")
    assert HOSTILE in await page.value("byId('story-title').textContent")
    served_there = "refusedLog(404, '404 page not found\\n', state.pods['uid-1'])"
    assert (await page.value(served_there)).endswith("On the node: bulkhead logs shop/cart-1")
    assert len(page.problems) == 2, page.problems  # Chromium reports each of the two refused requests
    page.problems.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_log_on_a_telephone_has_no_findings_and_the_keyboard_reaches_it(shown: Shown, scheme: str) -> None:
    shown.node.write_log(1, [f"{number} {'a' * 200}" for number in range(100)])
    page = await shown.open(360, 740, scheme)
    await page.value("openStory('uid-1', document.querySelector('#pods tbody button'))")
    await page.value("byId('story-close').focus()")
    for key in ("Tab", "Tab", "Enter"):
        await page.key(key)
    await page.until(f"{LOG} !== null")
    assert await page.value("document.activeElement.textContent") == "Log of main"
    assert await page.value("document.activeElement.ariaPressed") == "true"
    assert await findings(page, "#story") == []
    assert await page.value("document.documentElement.scrollWidth") <= 360
