"""A newcomer's path through the documents: the marked blocks are executed in their order, and timed.

docs/standalone.md, from `make run` to a pod of one's own and back to a clean machine.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.supervised import CHECKOUT
from tests.support.agents.first_run_home import home_of_our_own
from tests.support.source.document_blocks import Block, blocks, fits
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

WITHIN = 2 * WAIT_SECONDS  # seconds for one block
READY = "Ctrl-C stops the agent"
_OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}  # of the make that runs the tests: the reader's would print more


class Reader:
    """Who follows a document in two terminals. Its home is in place of /var/lib/bulkhead."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.directory = directory
        self.output = directory / "terminal"
        self.variables = directory / "variables"
        self.variables.touch()
        of_a_terminal = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
        self.environment = {**of_a_terminal, "BULKHEAD_HOME": str(home)}
        self.terminal: subprocess.Popen[bytes] | None = None

    def open_terminal(self, commands: str) -> None:
        """Run commands that stay in the foreground until Ctrl-C."""
        with self.output.open("wb") as output:
            self.terminal = subprocess.Popen(
                ["bash", "-ec", commands],
                cwd=CHECKOUT, env=self.environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        terminal = self.terminal
        leftovers.wait_until(lambda: READY in self.output.read_text() or terminal.poll() is not None, WITHIN)
        assert READY in self.output.read_text(), self.output.read_text()

    def press_ctrl_c(self) -> None:
        """Interrupt what runs in the first terminal, with all its processes, as a terminal does."""
        if self.terminal is not None and self.terminal.poll() is None:
            os.killpg(self.terminal.pid, signal.SIGINT)
            self.terminal.wait(WAIT_SECONDS)

    def run(self, block: Block) -> str:
        """What a block prints in the second terminal, which keeps its variables; each command must succeed."""
        commands = block.commands.replace("/var/lib/bulkhead", str(self.home))
        # A file of the reader's own in the checkout would be one of the files of the packages that other tests build.
        commands = re.sub(r"\bsite\.yaml\b", f"{self.directory}/site.yaml", commands)
        script = f"set -e -o pipefail; . {self.variables}; {commands}\nexport -p > {self.variables}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=CHECKOUT, env=self.environment, capture_output=True, text=True, timeout=WITHIN,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.commands}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with home_of_our_own() as home:
        found = Reader(home, tmp_path)
        yield found
        found.press_ctrl_c()


def test_the_blocks_of_the_standalone_page_lead_from_a_bare_machine_to_a_pod_and_back(reader: Reader) -> None:
    took = []
    for block in blocks(CHECKOUT / "docs/standalone.md"):
        began = time.monotonic()
        if block.how == "terminal":
            reader.open_terminal(block.commands)
        else:
            if block.how == "after Ctrl-C":
                reader.press_ctrl_c()
            printed = reader.run(block)
            expected = (block.prints or "").replace("/var/lib/bulkhead", str(reader.home))
            assert block.prints is None or fits(expected, printed), (
                f"{block.commands}\nexpected:\n{expected}\nprinted:\n{printed}"
            )
        took.append((block.commands.split("\n")[0][:40], time.monotonic() - began))
    assert len(took) == 8
    print(f"a bare machine to a pod and back: {sum(seconds for _, seconds in took):.1f} s")
    print("\n".join(f"{seconds:6.1f} s  {what}" for what, seconds in took))
    assert not reader.home.exists()
