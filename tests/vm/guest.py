"""A client of qemu's guest agent: waits until it answers, and runs commands in a VM. Knows nothing of what they do."""

import base64
import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_NAME = "org.qemu.guest_agent.0"  # the port that the agent opens in there
_TRY = 10.0  # seconds for one attempt to reach the agent
_POLL = 0.5  # seconds between two questions whether a command has ended


def channel(path: Path) -> tuple[str, ...]:
    """qemu's options for a guest agent at a Unix socket."""
    return ("-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={path},server=on,wait=off",
            "-device", f"virtserialport,chardev=agent,name={_NAME}")  # fmt: skip


class GuestError(Exception):
    """No answer in time, or an answer that is an error."""


class Guest:
    """The agent at this socket. A request that fails closes the connection; the next one makes another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._buffer = b""

    def close(self) -> None:
        """Forget the connection, with the answers that are on their way."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""

    def wait(self, up: Callable[[], bool], seconds: float) -> None:
        """Wait until the agent answers. GuestError after that time, or once `up`, whether qemu runs, is false."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(GuestError):
                self._connect(time.monotonic() + _TRY)
                return
            if not up() or time.monotonic() > deadline:
                raise GuestError(f"the guest agent does not answer within {seconds:.0f} s")
            time.sleep(_POLL)

    def start(self, command: Sequence[str]) -> int:
        """Begin a command, without anything to read; its process id. GuestError."""
        program, *arguments = command
        started = self._request("guest-exec", path=program, arg=arguments, **{"capture-output": True})
        return int(started["pid"])

    def run(self, command: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end. The return code is negative for a signal. GuestError, also after that time."""
        pid, deadline = self.start(command), time.monotonic() + seconds
        while not (state := self._request("guest-exec-status", pid=pid))["exited"]:
            if time.monotonic() > deadline:
                raise GuestError(f"not done within {seconds:.0f} s: {' '.join(command)}")
            time.sleep(_POLL)
        code = -state["signal"] if "signal" in state else state["exitcode"]
        out, error = (
            base64.b64decode(state.get(name, "")).decode(errors="replace") for name in ("out-data", "err-data")
        )
        return subprocess.CompletedProcess(list(command), code, out, error)

    def _request(self, command: str, **arguments: Any) -> Any:
        deadline = time.monotonic() + 12 * _TRY
        if self._socket is None:
            self._connect(deadline)
        answer = self._exchange({"execute": command, "arguments": arguments}, deadline)
        if "error" in answer:
            raise GuestError(f"{command}: {answer['error'].get('desc')}")
        return answer["return"]

    def _connect(self, deadline: float) -> None:
        """Connect, and skip what answers an earlier connection: the agent takes requests in order."""
        self.close()
        number = time.monotonic_ns()
        try:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(_TRY)
            self._socket.connect(str(self._path))
        except OSError as error:
            self.close()
            raise GuestError(str(error)) from error
        answer = self._exchange({"execute": "guest-sync", "arguments": {"id": number}}, deadline)
        while answer.get("return") != number:
            answer = self._answer(deadline)

    def _exchange(self, request: dict[str, Any], deadline: float) -> dict[str, Any]:
        assert self._socket is not None
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self.close()
            raise GuestError(str(error)) from error
        return self._answer(deadline)

    def _answer(self, deadline: float) -> dict[str, Any]:
        assert self._socket is not None
        try:
            while b"\n" not in self._buffer:
                self._socket.settimeout(max(0.1, deadline - time.monotonic()))
                if not (read := self._socket.recv(65536)):
                    raise ConnectionError("qemu closed the connection")
                self._buffer += read
        except OSError as error:
            self.close()
            raise GuestError(str(error)) from error
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
