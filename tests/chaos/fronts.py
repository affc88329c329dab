"""The two front doors of an agent: `supervisord -c supervisord.conf` (World) and the `kubelet` executable.

Only defines how the first process is started; everything else of an agent is the same behind both.
"""

import os
import shlex
import subprocess

from tests.support.agents.agent import BIN
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.agents.world import World


class KubeletWorld(World):
    """An agent that the executable `kubelet` supervises, as a unit of systemd would start it."""

    def start_supervisord(self) -> None:
        """Start `kubelet` with the flags of kubelet.args on its command line."""
        if self._supervisord is not None:
            self._supervisord.wait()  # a killed one before this one
        home = self.home.path
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("BULKHEAD", "KUBELET", "NOTIFY", "WATCHDOG"))}
        environment = {**clean, **KEPT_MACHINE, "BULKHEAD_HOME": str(home), "CRASH_AT": f"@{self._crash_file}"}
        environment |= self._environment
        flags = shlex.split((home / "kubelet.args").read_text())
        with (home / "stderr").open("ab") as stderr:
            self._supervisord = subprocess.Popen(
                [str(BIN / "kubelet"), *flags],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
                cwd="/",
            )


FRONTS: dict[str, type[World]] = {"supervisord": World, "kubelet": KubeletWorld}
