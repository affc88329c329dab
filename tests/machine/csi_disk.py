"""A node of a cluster with a disk that pods share by a claim: a CSI driver, which is a process in the machine, mounts
its file system with the options that it is given.

The cluster is the double of the API server: the real one of the tests knows no `seLinuxMount`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.kube import paths
from tests.fakes import csi_driver
from tests.fakes.api_http import HttpApiServer
from tests.fakes.api_resources import target_of
from tests.machine.machine import Machine
from tests.support.agents.conditions import is_ready
from tests.support.agents.world import busybox_pod
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.looks import pause_after

_NODE = "machine"
_NAME = "disk"  # of the volume, its claim and its PersistentVolume
_DRIVER = "disk.csi.example.com"
_STATE = "/var/lib/csi-disk"
_IMAGE = f"{_STATE}/volumes/{_NAME}/image"
_KUBECONFIG = "/etc/bulkhead/kubeconfig"
_PROGRAM = "/opt/csi_driver.py"
_SECONDS = 5 * WAIT_SECONDS
# As in a privileged container, `mount` and `mkfs` have the domain of the process that runs them: the ones that Debian's
# policy has for them may not use a file of another service.
_PRIVILEGED = ("setpriv", "--no-new-privs")


class CsiDisk:
    """The disk, on a machine with our package whose agent runs without a cluster until `join`."""

    def __init__(self, machine: Machine, api: HttpApiServer) -> None:
        self._machine, self._api = machine, api

    def join(self, root: str, args: str) -> None:
        """Start the driver, and the agent again as a node of the cluster. `root`: of the kubelet; `args`: the file with
        its flags."""
        machine = self._machine
        machine.must("mkdir", "-p", f"{_STATE}/volumes/{_NAME}")
        machine.must(*_PRIVILEGED, "mkfs.ext4", "-q", _IMAGE, "16M")
        machine.write(_PROGRAM, Path(csi_driver.__file__).read_text())
        machine.must("systemd-run", "--unit=csi-disk", *_PRIVILEGED, "/opt/bulkhead/bin/python", _PROGRAM, root, _STATE,
                     f"--name={_DRIVER}", f"--capability={csi_driver.STAGE}")  # fmt: skip
        self._api.do(self._put_objects)
        self._api.write_kubeconfig(machine.shared / "kubeconfig", _NODE)
        machine.must("install", "--mode=0600", "/host/kubeconfig", _KUBECONFIG)
        machine.must("sh", "-c", f"echo --kubeconfig={_KUBECONFIG} >> {args} && systemctl restart bulkhead")
        self._wait_for(lambda: is_ready(self._get(paths.node(_NODE)) or {}), "the node to be Ready")

    def run(self, name: str, script: str, **security: Any) -> None:
        """Create a pod that has the disk at /data. `security`: its security context."""
        pod = busybox_pod(name, "sh", "-c", script, securityContext=security)
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": _NAME}}]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        self._api.do(lambda: self._api.server.bind(pod, _NODE))

    def delete(self, name: str) -> None:
        """Delete a pod, and wait until its node has removed it."""
        path = paths.pod("default", name)
        self._api.do(lambda: self._api.server.delete(path))
        self._wait_for(lambda: self._get(path) is None, f"pod {name} to be gone")

    def wait_for_event(self, name: str, reason: str, part: str) -> None:
        """Wait until there is an Event about the pod whose message has this part."""
        target = target_of(paths.events("default"))

        def told() -> bool:
            events = self._api.do(lambda: [event for _, event in self._api.server.store.below(target)])
            about = [event for event in events if event["involvedObject"]["name"] == name]
            return any(event["reason"] == reason and part in event["message"] for event in about)

        self._wait_for(told, f"an event {reason} of pod {name}: {part}")

    def mounts(self) -> list[str]:
        """Return the options of each mount of the disk, for the node and for its pods."""
        lines = self._machine.call("grep", "kubernetes.io.csi/", "/proc/mounts").stdout.splitlines()
        return [line.split()[3] for line in lines]

    def label_on_disk(self, file: str) -> str:
        """Return the label that a file has on the disk itself. No mount may give it another one meanwhile."""
        self._machine.must(*_PRIVILEGED, "mount", "-o", "loop", _IMAGE, "/mnt")
        try:
            return self._machine.must("stat", "--format=%C", f"/mnt/{file}").strip()
        finally:
            self._machine.must("umount", "/mnt")

    def _put_objects(self) -> None:
        server, claims = self._api.server, "/api/v1/namespaces/default/persistentvolumeclaims"
        spec = {"attachRequired": False, "seLinuxMount": True}
        server.put(f"/apis/storage.k8s.io/v1/csidrivers/{_DRIVER}", {"spec": spec})
        claim = server.put(f"{claims}/{_NAME}", {"spec": {"volumeName": _NAME}})
        server.put(f"{claims}/{_NAME}", {**claim, "status": {"phase": "Bound"}})
        volume = {
            "claimRef": {"namespace": "default", "name": _NAME, "uid": claim["metadata"]["uid"]},
            "csi": {"driver": _DRIVER, "volumeHandle": _NAME},
            "capacity": {"storage": "16Mi"},
            "accessModes": ["ReadWriteOnce"],
        }
        server.put(f"/api/v1/persistentvolumes/{_NAME}", {"spec": volume})

    def _get(self, path: str) -> dict[str, Any] | None:
        return self._api.do(lambda: self._api.server.get(path))

    def _wait_for(self, holds: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not holds():
            waited = time.monotonic() - began
            assert waited < _SECONDS, f"waited {waited:.0f} s for {what}"
            time.sleep(pause_after(waited))
