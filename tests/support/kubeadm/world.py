"""An agent that kubeadm's unit and drop-in start, with nothing in them changed but paths."""

import subprocess
from pathlib import Path

from tests.support.agents.agent import BIN, NODE
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.agents.world import World
from tests.support.kubeadm.unit import DROP_IN, UNIT, moved, start_of, whole_environment


class WorldOfKubeadm(World):
    """A World whose home has the files that kubeadm leaves in /etc/kubernetes and /var/lib/kubelet."""

    @property
    def stderr(self) -> Path:
        """Return the file that has what journald would get."""
        return self.home.path / "stderr"

    def start_supervisord(self) -> None:
        home = self.home.path
        (home / "kubeadm-flags.env").write_text('KUBELET_KUBEADM_ARGS="--node-labels=made-by=kubeadm --v=2"\n')
        (home / "default-kubelet").write_text(f"# overrides\nKUBELET_EXTRA_ARGS={self.overrides()}\n")
        places = {
            "/usr/bin/kubelet": str(BIN / "kubelet"),
            "/etc/kubernetes": str(home),
            "/var/lib/kubelet/config.yaml": str(home / "kubelet.yaml"),
            "/var/lib/kubelet": str(home),
            "/etc/default/kubelet": str(home / "default-kubelet"),
        }
        argv, environment = start_of(moved(UNIT, places), moved(DROP_IN, places))
        with self.stderr.open("ab") as stderr:
            self._supervisord = subprocess.Popen(
                argv, env=whole_environment({**environment, **KEPT_MACHINE, "BULKHEAD_HOME": str(home)}),
                stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, start_new_session=True, cwd="/",
            )  # fmt: skip

    def overrides(self) -> str:
        """Return the flags that an operator adds in /etc/default/kubelet."""
        return f"--hostname-override={NODE}"
