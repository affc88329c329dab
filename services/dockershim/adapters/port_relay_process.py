"""Connections to ports inside the network namespace of a sandbox, by a small program that is started in it."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

from shared.process.child_process import process_end

_RELAY = Path(__file__).parent.parent / "port_relay.py"
_MAX_SAID_BYTES = 1024
_BUFFER_BYTES = 128 * 1024


class PortRelay:
    """One connection: what is written goes to the port, what the port sends is read."""

    def __init__(self, process: "subprocess.Popen[bytes]", ours: socket.socket) -> None:
        self._process, self._socket = process, ours

    @classmethod
    def start(cls, pid: int, port: int) -> "PortRelay":
        """Start the program beside this process of a sandbox. Blocks. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-IS", str(_RELAY), str(port)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        return cls(process, ours)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return both directions."""
        return await asyncio.open_connection(sock=self._socket, limit=_BUFFER_BYTES)

    async def end(self) -> str:
        """Wait until the program has ended; return why it could not connect, "" where it could."""
        await process_end(self._process.pid)
        assert self._process.stderr is not None
        said = os.read(self._process.stderr.fileno(), _MAX_SAID_BYTES).decode("utf-8", "replace").strip()
        return said if self._process.poll() else ""

    def kill(self) -> None:
        """End the program, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
