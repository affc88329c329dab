"""A machine of the tests with the Debian package, as an operator at its shell sees it: packages, unit, pods, processes.

Everything is done by commands in there; a subclass decides how those run. Knows nothing of namespaces and of kernels.
"""

import json
import subprocess
import time
from abc import ABC, abstractmethod
from typing import Any

from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_COMMAND, Image

PAUSE = Image(name="registry.k8s.io/pause:3.10", command=PAUSE_COMMAND)  # that of the package's kubelet.yaml
IMAGES = (PAUSE, BUSYBOX_CONTENT)  # what the pods of `add_pod` need

# The environment of a login of root.
LOGIN = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8")
CONTAINERD = "/run/bulkhead/containerd/containerd.sock"  # of the package's configuration
MANIFESTS = "/etc/bulkhead/manifests"
# The agent never reads a part of the manifest, and a later power cut does not remove it.
_WRITE = 'printf %s "$1" > "$2/.new" && sync "$2/.new" && mv "$2/.new" "$2/$3" && sync "$2"'


class InstalledNode(ABC):
    """`within`: seconds for what takes a few in an idle machine of that kind."""

    within = 2 * WAIT_SECONDS

    @abstractmethod
    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in there as a login of root would, without a terminal."""

    @abstractmethod
    def import_images(self) -> None:
        """Import IMAGES into its containerd."""

    def last_lines(self) -> str:
        """Return the end of the machine's own log, for the failure of a command."""
        return ""

    def must(self, *command: str, **environment: str) -> str:
        """Run a command; return its standard output. Raises AssertionError with all output where it fails."""
        return self._checked(*command, **environment).stdout

    def json(self, *command: str) -> Any:
        """Return what a command in there prints as JSON."""
        return json.loads(self.must(*command))

    def apt(self, *arguments: str) -> str:
        """Run apt-get in there; return both outputs. Raises AssertionError where it fails."""
        done = self._checked("apt-get", "--yes", *arguments)
        return done.stdout + done.stderr

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Return the unit's properties as systemctl prints them."""
        lines = self.must("systemctl", "show", *(f"--property={name}" for name in properties), unit).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory."""
        return self.call("test", "-e", path).returncode == 0

    def version(self) -> str:
        """Return the version of the installed program, as it prints it."""
        return self.must("bulkhead", "--version").strip()

    def services(self) -> set[int]:
        """Return the process ids of the agent's services; none while it cannot be asked."""
        shown = self.call("bulkhead", "status", "-o", "json").stdout
        return {row["pid"] for row in json.loads(shown)["processes"] if row["pid"]} if shown else set()

    def add_pod(self, name: str, **fields: Any) -> None:
        """Write the manifest of a pod that runs until it is stopped, with further fields of its spec."""
        container = {"name": "c", "image": BUSYBOX_CONTENT.name, "command": ["sleep", "100000"]}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container], **fields}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.must("sh", "-c", _WRITE, "sh", json.dumps(pod), MANIFESTS, f"{name}.json")

    def remove_pod(self, name: str) -> None:
        """Remove the manifest of such a pod."""
        self.must("rm", f"{MANIFESTS}/{name}.json")

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods as `bulkhead pods` shows them: name, uid, state, restarts. It is asked again while it says
        that a process does not answer it within a second, as where ten pods start: then facts are missing, or are those
        of the runtime, which podsync may not have taken in yet."""
        deadline = time.monotonic() + self.within
        while (done := self.call("bulkhead", "pods", "-o", "json")).stderr:
            assert time.monotonic() < deadline, (done.returncode, done.stderr, self.last_lines())
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def states(self) -> dict[str, str]:
        """Return the state of each pod."""
        return {pod["name"]: pod["state"] for pod in self.pods()}

    def tasks(self, socket: str = CONTAINERD) -> set[str]:
        """Return the id and the process of each running container and sandbox, separated by a space."""
        listed = self.must("ctr", "--address", socket, "--namespace", "k8s.io", "tasks", "ls").splitlines()
        return {" ".join(line.split()[:2]) for line in listed[1:] if "RUNNING" in line}

    def run_on(self, tasks: set[str]) -> bool:
        """Return whether all of these tasks still run, where no containerd can be asked: a container is in a cgroup
        that has its id in the name."""
        named = [task.split() for task in tasks]
        cgroups = [self.call("cat", f"/proc/{process}/cgroup").stdout for _, process in named]
        return all(identity in cgroup for (identity, _), cgroup in zip(named, cgroups, strict=True))

    def _checked(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        done = self.call(*command, **environment)
        assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr, self.last_lines())
        return done
