"""Clients that crowd a TLS listener: idle connections, partial heads and bad tokens, as many as asked for, at once.

`python -m tests.load.crowd PORT COUNT SECONDS` opens COUNT of each, keeps all for SECONDS and until COUNT tokens were
refused, opening again those that are closed, and prints one line of JSON at its end: how many were opened, and how
many answers of each status came.
"""

import asyncio
import itertools
import json
import resource
import ssl
import sys
import time
from collections import Counter

from tests.support.waits.deadline import WAIT_SECONDS

FIELD = b"X-%d: " + b"a" * 8000 + b"\r\n"
FIELDS = 120  # some 960 KB
CONNECTING = 40  # connections that are opened at the same time
LONGEST = 2 * WAIT_SECONDS  # seconds until each must have had its connection, and then its token its answer
PAUSE = 5.0  # seconds before one that ended is opened again
TOKEN = "a" * 2000  # characters, and a number that makes each another


class Crowd:
    """One run: `count` clients of each kind."""

    def __init__(self, port: int, count: int) -> None:
        self.port, self.count = port, count
        self.counts: Counter[str] = Counter()
        self.opened = asyncio.Event()  # each has had its connection
        self.answered = asyncio.Event()  # 401, as many times as asked for
        self._left, self._unanswered = 3 * count, count
        self._connecting = asyncio.Semaphore(CONNECTING)
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def run(self, seconds: float) -> None:
        """Return `seconds` after the last has had its connection, and not before so many tokens were refused."""
        kinds = ("idle", "head", "token")
        clients = [asyncio.create_task(self._client(kind, n)) for n in range(self.count) for kind in kinds]
        try:
            async with asyncio.timeout(LONGEST):
                await self.opened.wait()
            await asyncio.sleep(seconds)
            async with asyncio.timeout(LONGEST):
                await self.answered.wait()
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)

    async def _client(self, kind: str, number: int) -> None:
        for attempt in itertools.count():
            try:
                await self._crowd(kind, number, first=attempt == 0)
            except (OSError, EOFError) as error:
                self.counts[f"{kind} {type(error).__name__}"] += 1
            await asyncio.sleep(PAUSE)

    async def _crowd(self, kind: str, number: int, *, first: bool) -> None:
        try:
            async with self._connecting:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls)
            self.counts[f"{kind} opened"] += 1
        finally:
            self._left -= first
            if not self._left:
                self.opened.set()
        try:
            if kind == "head":
                writer.write(b"GET /pods HTTP/1.1\r\nHost: x\r\n")
                for field in range(FIELDS):
                    writer.write(FIELD % field)
                    await writer.drain()
            elif kind == "token":
                token = f"{TOKEN}{number}-{time.monotonic_ns()}"
                writer.write(f"GET /pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            while line := await reader.readline():
                if line.startswith(b"HTTP/1."):
                    self.counts[f"{kind} {line.split()[1].decode()}"] += 1
                    self._unanswered -= kind == "token" and line.split()[1] == b"401"
                    if self._unanswered <= 0:
                        self.answered.set()
        finally:
            writer.transport.abort()


async def main(port: int, count: int, seconds: float) -> None:
    """Crowd the listener on this port."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count + 100)), hard))
    crowd = Crowd(port, count)
    await crowd.run(seconds)
    print(json.dumps(crowd.counts, sort_keys=True))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
