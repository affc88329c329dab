"""SIGKILL of volume at each step of preparing and unpreparing resource claims, beside a driver that is a process too
and is alive, slow or dead: in the end the driver has prepared what pods need and nothing else, and no pod that runs was
judged again (node.md 4.16)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from services.volume.controllers.resource_claims import RECORD
from services.volume.core.resource_claims.dra_state import FILE_NAME, read_dra_state
from tests.programs.claim_volume import SHOWN, read_shown, write_plan
from tests.programs.dra_driver import PREPARE, UNPREPARE, DraDriver
from tests.service.volume.claim_node import GPU
from tests.support.waits.deadline import WAIT_SECONDS

CHECKOUT = Path(__file__).resolve().parents[2]
PREPARING = ("volume.claim.saved", "volume.claim.answered", "volume.claim.prepared", "volume.claim.recorded")
POINTS = (*PREPARING, "volume.claim.unprepared")
PREPARED = [("prepared", "")]


class Stage:
    """Has a directory for volume and its driver, and the processes of both."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "root"
        self.driver = DraDriver(self.root, GPU)  # its files; a process serves
        self._crash_at = directory / "crash_at"
        self._claims: dict[str, list[str]] = {}
        self._pods: dict[str, tuple[list[str], PodState]] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, crash_at: str = "") -> "subprocess.Popen[bytes]":
        if crash_at:
            self._crash_at.write_text(crash_at)
        environment = os.environ | {"CRASH_AT": f"@{self._crash_at}"}
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=CHECKOUT, env=environment)
        self.processes.append(process)
        return process

    def start_driver(self) -> "subprocess.Popen[bytes]":
        return self.start("tests.programs.dra_driver", str(self.root), GPU)

    def start_volume(self, crash_at: str = "") -> "subprocess.Popen[bytes]":
        (self.directory / SHOWN).unlink(missing_ok=True)
        return self.start("tests.programs.claim_volume", str(self.directory), crash_at=crash_at)

    def arm(self, point: str) -> None:
        """Kill volume at this point from now on."""
        temporary = self._crash_at.with_suffix(".new")
        temporary.write_text(point)
        temporary.rename(self._crash_at)

    def run_pod(self, name: str) -> None:
        self._claims[name], self._pods[name] = [name], ([name], PodState.SYNC)
        self._publish()

    def end_pod(self, name: str) -> None:
        self._pods[name] = ([name], PodState.TERMINATED)
        self._publish()

    def _publish(self) -> None:
        write_plan(self.directory, self._claims, self._pods)

    def shown(self) -> dict[str, list[tuple[str, str]]]:
        """State and error of each claim, by pod."""
        found = read_shown(self.directory)
        return {pod: [(state, error) for state, error in claims] for pod, claims in found.items()}

    def is_settled(self, *pods: str) -> bool:
        """Return whether exactly these pods have their claims, by what is published, the driver, the record and the
        checkpoint, which is written last."""
        wanted = set(pods)
        return (self.root / FILE_NAME).exists() and (
            self.shown() == dict.fromkeys(pods, PREPARED)
            and set(self.driver.prepared().values()) == wanted
            and {claim["name"] for claim in json.loads((self.root / RECORD).read_text())["claims"]} == wanted
            and {claim.name for claim in read_dra_state((self.root / FILE_NAME).read_bytes())} == wanted
        )


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="dra") as directory:
        (Path(directory) / "root").mkdir()
        found = Stage(Path(directory))
        try:
            yield found
        finally:
            for process in found.processes:
                process.kill()
                process.wait()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def wait_killed(process: "subprocess.Popen[bytes]") -> None:
    assert process.wait(WAIT_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("driver", ["alive", "slow", "dead"])
def test_a_kill_leaves_what_pods_need_and_nothing_else(driver: str) -> None:
    """At each point one pod is killed in the middle of its claim, and goes on or ends meanwhile. `dead`: the driver is
    killed with volume, and comes back later."""
    with stage() as node:
        serving = node.start_driver()
        node.run_pod("first")
        volume = node.start_volume()
        wait_until(lambda: node.is_settled("first"), "the first pod has its claim")
        if driver == "slow":
            node.driver.fault(PREPARE, "slow")
            node.driver.fault(UNPREPARE, "slow")
        for point in PREPARING:
            name = point.rpartition(".")[2]
            node.arm(point)
            node.run_pod(name)
            wait_killed(volume)
            if driver == "dead":
                serving.kill()
                serving.wait()
            volume = node.start_volume()
            if driver == "dead":
                wait_until(lambda: node.shown().get("first") == PREPARED, "a pod that runs keeps its claim")
                serving = node.start_driver()
            wait_until(partial(node.is_settled, "first", name), f"after {point} both pods have their claims")
            node.end_pod(name)
            wait_until(lambda: node.is_settled("first"), f"after {point} the claim of the ended pod is unprepared")
        for ends in (True, False):
            node.run_pod("last")
            wait_until(lambda: node.is_settled("first", "last"), "the last pod has its claim")
            node.arm("volume.claim.unprepared" if ends else "volume.claim.saved")
            if ends:
                node.end_pod("last")
            else:
                node.run_pod("more")
            wait_killed(volume)
            if driver == "dead":
                serving.kill()
                serving.wait()
            node.end_pod("last")
            if not ends:
                node.end_pod("more")
            volume = node.start_volume()
            if driver == "dead":
                wait_until(lambda: node.shown().get("first") == PREPARED, "a pod that runs keeps its claim")
                serving = node.start_driver()
            wait_until(lambda: node.is_settled("first"), "what ended while volume was away is unprepared")
        assert node.driver.calls(PREPARE).count(["first"]) == 1
        assert ["first"] not in node.driver.calls(UNPREPARE)
