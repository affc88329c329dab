"""Chromium without a window, driven over its DevTools protocol: opens pages, sends keys, takes pictures."""

import asyncio
import base64
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS

PROGRAM = "chromium-headless-shell"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--no-proxy-server", "--remote-debugging-port=0",
    "--force-color-profile=srgb", "about:blank",
)  # fmt: skip
_KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37,
    "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
# Chromium drops its requests when an interface of the machine comes or goes, as those of another test's pods do.
_INTERFACES_CHANGED = "ERR_NETWORK_CHANGED"
_TEXTS = {"Enter": "\r", " ": " "}


class Page:
    """One page. `problems`: what its console has reported as an error, refusals of its content policy included."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.requests: list[str] = []  # URLs
        self._incomplete = False  # a file of the page was dropped
        self._before_incomplete: int | None = None  # number of problems before a page that is opened once more
        self._loaded = asyncio.Event()  # the page and its files have come, or failed to come

    async def receive(self) -> None:
        """Take what the browser sends, until it ends."""
        async for message in self._socket:
            event = json.loads(message.data)
            if (answer := self._answers.pop(event.get("id", 0), None)) is not None:
                answer.set_result(event)
            elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                entry = event["params"]["entry"]
                if _INTERFACES_CHANGED not in entry["text"]:
                    self.problems.append(f"{entry['text']} {entry.get('url', '')}")
                elif entry.get("url", "").endswith((".js", ".css")):
                    self._incomplete = True
            elif event.get("method") == "Page.loadEventFired":
                self._loaded.set()
            elif event.get("method") == "Runtime.executionContextsCleared" and self._before_incomplete is not None:
                del self.problems[self._before_incomplete :]  # what one file lacks of another is no fault of the page
                self._before_incomplete = None
            elif event.get("method") == "Runtime.exceptionThrown":
                self.problems.append(str(event["params"]["exceptionDetails"]))
            elif event.get("method") == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(WAIT_SECONDS):
            result = await answer
        assert "error" not in result, (method, result)
        found: dict[str, Any] = result["result"]
        return found

    async def open(self, url: str) -> None:
        """Go to this address, and wait until the page and all of its files are there."""
        complete, before = False, len(self.problems)
        while not complete:
            self._incomplete = False
            self._loaded.clear()
            error = (await self.send("Page.navigate", url=url)).get("errorText", "")
            async with asyncio.timeout(WAIT_SECONDS):
                await self._loaded.wait()
            complete = _INTERFACES_CHANGED not in error and not self._incomplete
            if not complete:
                self._before_incomplete = before

    async def show(self, width: int, height: int, scheme: str = "light") -> None:
        """Take this size in CSS pixels, as a telephone where it is narrow, and this colour scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, with a promise awaited."""
        result = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    async def until(self, expression: str, fits: Callable[[Any], bool] = bool) -> Any:
        """Wait until the expression has a value that fits, and return it."""
        value = None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not fits(value := await self.value(expression)):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{expression} is {value!r} after {WAIT_SECONDS:.0f} s; {self.problems}") from None
        return value

    async def key(self, name: str) -> None:
        """Press and release a key."""
        pressed = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": _KEYS[name]}
        text = {"text": _TEXTS[name]} if name in _TEXTS else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def picture(self, path: Path) -> None:
        """Save what is visible as PNG."""
        shot = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Page]:
    """Start a browser with its profile in this directory, and give the block its one page."""
    require_command(PROGRAM)
    process = await asyncio.create_subprocess_exec(
        PROGRAM, f"--user-data-dir={directory}", *_FLAGS,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as client:
            async with asyncio.timeout(WAIT_SECONDS):
                address = await _address(process)
            port = address.split(":")[2].partition("/")[0]
            async with asyncio.timeout(WAIT_SECONDS):
                while (target := await _page(client, port)) is None:
                    await asyncio.sleep(0.05)
            async with client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=1 << 28) as socket:
                page = Page(socket)
                receiving = asyncio.create_task(page.receive())
                try:
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await page.send(f"{domain}.enable")
                    yield page
                finally:
                    receiving.cancel()
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the program is a script, the browser several processes
        await process.communicate()  # until the last of them has closed its output


async def _page(client: aiohttp.ClientSession, port: str) -> dict[str, Any] | None:
    """Return what the browser lists of its page; None before it has one."""
    async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
        return next((one for one in await answer.json() if one["type"] == "page"), None)


async def _address(process: asyncio.subprocess.Process) -> str:
    """Return the address of the protocol, which the browser prints at its start."""
    assert process.stderr is not None
    lines = []
    async for raw in process.stderr:
        line = raw.decode(errors="replace").strip()
        lines.append(line)
        if line.startswith("DevTools listening on "):
            return line.removeprefix("DevTools listening on ")
    raise AssertionError("\n".join(["the browser ended:", *lines]))
