"""Runs the programs of a test's control plane as processes, with flags that they have and with a log for each."""

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import aiohttp

from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped

READY_TIMEOUT = 2 * WAIT_SECONDS  # for a program to get ready

# What a node and its operator use of the version that tools/control-plane compiles, and what its API server needs. A
# start costs a third less CPU time without the other groups, and without their controllers.
_API_OF_1_20 = (
    *("api/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", "authentication.k8s.io/v1"),
    *("authorization.k8s.io/v1", "certificates.k8s.io/v1", "certificates.k8s.io/v1beta1", "coordination.k8s.io/v1"),
    *("events.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1", "node.k8s.io/v1beta1", "policy/v1beta1"),
    *("rbac.authorization.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1", "storage.k8s.io/v1beta1"),
)
FLAGS_OF_1_20 = {
    "runtime-config": ",".join(("api/all=false", *(f"{name}=true" for name in _API_OF_1_20))),
    "enable-priority-and-fairness": "false",  # its API group is not served
    "disable-admission-plugins": "MutatingAdmissionWebhook,ValidatingAdmissionWebhook",  # nor is that of webhooks
}


class Programs:
    """The binaries in `folder`, run with logs in `directory`."""

    def __init__(self, folder: Path, directory: Path, gates: Mapping[str, bool]) -> None:
        self._folder, self._directory, self._gates = folder, directory, dict(gates)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def version(self, program: str) -> str:
        """Return the output of --version."""
        return _output(self._folder / program, "--version")

    def has_gate(self, program: str, gate: str) -> bool:
        """Return whether this version of the program lets the feature gate be set."""
        return f"{gate}=true|false" in _output(self._folder / program, "--help")

    def start(self, program: str, flags: Mapping[str, str]) -> None:
        """Start the program with those of the flags and feature gates that this version has."""
        known = _output(self._folder / program, "--help")
        arguments = [f"--{name}={value}" for name, value in flags.items() if f"--{name} " in known]
        if gates := [gate for gate in self._gates if self.has_gate(program, gate)]:
            arguments.append(
                "--feature-gates=" + ",".join(f"{gate}={str(self._gates[gate]).lower()}" for gate in gates)
            )
        command: Sequence[str] = [str(self._folder / program), *arguments]
        if (setpriv := shutil.which("setpriv")) is not None:  # so that it ends with a killed test run
            command = [setpriv, "--pdeathsig", "KILL", "--", *command]
        with (self._directory / f"{program}.log").open("ab") as log:
            self._processes[program] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment()
            )

    async def until_ok(self, program: str, url: str, context: ssl.SSLContext | None) -> None:
        """Return once the URL answers 200; it sends no event, so this polls every 50 ms."""
        deadline = time.monotonic() + READY_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                self.check_alive(program, deadline)
                try:
                    async with session.get(url, ssl=context or True) as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(0.05)

    def check_alive(self, program: str, deadline: float) -> None:
        """Raise AssertionError with the end of its log when it has ended, or when the deadline (monotonic) has
        passed."""
        ended = self._processes[program].poll() is not None
        if ended or time.monotonic() > deadline:
            what = "ended" if ended else f"was not ready within {READY_TIMEOUT:.0f} s"
            raise AssertionError(f"{program} {what}:\n" + "\n".join(self.log(program).splitlines()[-15:]))

    def log(self, program: str) -> str:
        """Return what the program has written so far."""
        return (self._directory / f"{program}.log").read_text(errors="replace")

    def signal(self, program: str, number: signal.Signals) -> None:
        """Send the signal to the program. After SIGSTOP, wait until it is stopped."""
        process = self._processes[program]
        process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_stopped(process.pid)

    async def kill(self, program: str) -> None:
        """Send SIGKILL to the program, stopped or not; do nothing when it does not run."""
        process = self._processes.pop(program, None)
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)

    def kill_all(self) -> None:
        """Send SIGKILL to all programs that run and wait for their ends."""
        for process in self._processes.values():
            process.kill()
        while self._processes:
            self._processes.popitem()[1].wait()


def _environment() -> dict[str, str]:
    """Return the environment of these programs. GOGC lets Go collect garbage seldom: it takes a fifth of the CPU time
    of an API server's start, and a test ends before its memory matters."""
    return {**os.environ, "GOGC": "800"}


@cache
def _output(program: Path, flag: str) -> str:
    done = subprocess.run([program, flag], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
