"""The same agent on containerd 1.7, which reports containers by GetContainerEvents: one reader, each event a hint.
What pods may ask for is done there as on 1.6: tests/e2e/behaviour has each in full, one pod of each kind is here.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.world import World, busybox_pod
from tests.support.installed.lacking import lack
from tests.support.runtime.probe_target import TARGET_IMAGE, target_image
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def path() -> str:
    """PATH with the newer containerd and its shim first, fetched if need be."""
    done = subprocess.run([CHECKOUT / "tools/newer-containerd"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lack(done.stderr.strip().splitlines()[-1])
    return f"{done.stdout.strip()}:{os.environ['PATH']}"


async def test_a_pod_runs_restarts_and_ends_on_a_containerd_with_an_event_stream(path: str) -> None:
    async with World(environment={"PATH": path}) as world:
        world.put_manifest("modern", busybox_pod("modern"))
        pod = await world.wait_running("modern")
        os.kill(pod.containers[0].pid, signal.SIGKILL)
        began = time.monotonic()

        async def again() -> bool:
            seen = await world.runtime_pod("modern")
            return seen is not None and (seen.containers[0].attempt, seen.containers[0].state) == (
                1,
                ContainerState.RUNNING,
            )

        await world.wait_for(again, "attempt 1 to run")
        print(f"restarted after {time.monotonic() - began:.3f} s")
        assert "relying on pidfds" not in world.log_of("pleg"), "it has no event stream"
        pid = world.kill("containerd")
        await world.wait_for(lambda: world.pid_of("containerd") not in (0, pid), "containerd to come back")
        world.put_manifest("next", busybox_pod("next"))
        await world.wait_running("next")
        for name in ("modern", "next"):
            world.remove_manifest(name)
            await world.wait_gone(name)


SIZE = 20_000
ROTATING = {"containerLogMaxSize": str(SIZE), "containerLogMaxFiles": 2, "containerLogMonitorInterval": "3s"}
COUNTING = f"i=0; while :; do i=$((i+1)); echo $i-{'x' * 100}; usleep 5000; done"
HTTPD = "mkdir /w; echo ok > /w/ok; exec httpd -f -p 8080 -h /w"
FIRST_ENDS = "[ -e /out/$FILE ] && exec sleep 1000000; note once; exit 42"


def every_kind(notes: Notes) -> dict[str, Object]:
    """By manifest name."""
    soon = {"periodSeconds": 1, "failureThreshold": 30, "timeoutSeconds": 60}
    empty = {"name": "v", "emptyDir": {}}
    part = {"name": "v", "mountPath": "/part", "subPath": "a/b"}
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]

    def noting(name: str, script: str, file: str, **fields: Any) -> Object:
        return notes.container(name, script, file=file, **fields)

    def pod(name: str, *containers: Object, **spec: Any) -> Object:
        return pod_of(name, *containers, volumes=[notes.volume(), empty], **spec)

    sidecar = noting("side", "note side; exec sleep 1000000", "order", restartPolicy="Always")
    sidecar["startupProbe"] = {"exec": {"command": ["grep", "-q", "side", "/out/order"]}, **soon}
    steps = [noting("one", "note one", "order"), sidecar, noting("two", "note two", "order")]
    hooks = {"postStart": notes.hook("note hooked", "start"), "preStop": notes.hook("note hooked", "stop")}
    message_fields = {"terminationMessagePath": "/dev/last-words"}
    by_log = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    target = {"name": "c", "image": TARGET_IMAGE, "command": ["/bin/probe-target", "8000"]}
    web = {"httpGet": {"path": "/ok", "port": 8080}, **soon}
    pods = [
        pod("order", noting("main", "note main; exec sleep 1000000", "order"), initContainers=steps),
        pod("post-start", noting("c", "exec sleep 1000000", "start", lifecycle=hooks | {"preStop": None})),
        pod("pre-stop", noting("c", "dying", "stop", lifecycle=hooks | {"postStart": None}), grace=20),
        pod("probe-exec", container("c", "touch /up; exec sleep 9999", readinessProbe=_exec("test -e /up") | soon)),
        pod("probe-http", container("c", HTTPD, startupProbe=web, readinessProbe=web)),
        pod("probe-tcp", container("c", HTTPD, startupProbe={"tcpSocket": {"port": 8080}, **soon})),
        pod("probe-grpc", target | {"imagePullPolicy": "Never", "readinessProbe": {"grpc": {"port": 8000}, **soon}}),
        pod("unhealthy", container("c", livenessProbe=_exec("false") | {"periodSeconds": 1, "failureThreshold": 1})),
        pod("sub-path", container("c", "echo x > /part/f; exec sleep 9999", volumeMounts=[part])),
        pod("says", container("c", "echo -n bye > /dev/last-words; exit 3", **message_fields), restartPolicy="Never"),
        pod("logs", container("c", "echo out of words; exit 4", **by_log), restartPolicy="Never"),
        pod("rotates", container("c", COUNTING)),
        pod("ruled", noting("c", FIRST_ENDS, "ruled", restartPolicyRules=rules, restartPolicy="Never")),
        pod("never-pulled", container("c", image="localhost/none:1", imagePullPolicy="Never")),
        pod("no-pull", container("c", image="localhost:9/none:1", imagePullPolicy="Always")),
        pod("no-program", container("c") | {"command": ["/no/such/program"]}),
    ]
    return {each["metadata"]["name"]: each for each in pods}


def _exec(script: str) -> Object:
    return {"exec": {"command": ["sh", "-c", script]}}


def size_of(file: Path) -> int:
    """Return the bytes of the file; 0 while it is absent: a rotated log is renamed before the next one is made."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def waiting(*reasons: str) -> Callable[[Object], bool]:
    return lambda status: ((status.get("state") or {}).get("waiting") or {}).get("reason") in reasons


def ended(code: int, message: str) -> Callable[[Object], bool]:
    def holds(status: Object) -> bool:
        end = (status.get("state") or {}).get("terminated") or {}
        return (end.get("exitCode"), str(end.get("message")).strip()) == (code, message)

    return holds


def is_ready(status: Object) -> bool:
    return status.get("ready") is True


def restarted(status: Object) -> bool:
    return int(status.get("restartCount") or 0) > 0


EXPECTED: dict[str, Callable[[Object], bool]] = {  # of the status of the first container
    **dict.fromkeys(("order", "post-start", "pre-stop", "sub-path", "rotates"), is_ready),
    **dict.fromkeys(("probe-exec", "probe-http", "probe-tcp", "probe-grpc"), is_ready),
    "unhealthy": restarted,
    "says": ended(3, "bye"),
    "logs": ended(4, "out of words"),
    "ruled": lambda status: restarted(status) and is_ready(status),
    "never-pulled": waiting("ErrImageNeverPull"),
    "no-pull": waiting("ErrImagePull", "ImagePullBackOff"),
    "no-program": waiting("RunContainerError", "CrashLoopBackOff"),
}


async def test_what_pods_may_ask_for_is_done_on_it_too(path: str, tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    pods = every_kind(notes)
    async with World(environment={"PATH": path}, config=ROTATING) as world:
        await world.import_images((target_image(),))
        for name, pod in pods.items():
            world.put_manifest(name, pod)

        async def holds(name: str) -> bool:
            pod = await world.pod(name)
            return EXPECTED[name](status_of(pod or {}, str(pods[name]["spec"]["containers"][0]["name"])))

        await asyncio.gather(*(world.wait_for(partial(holds, name), name, 2 * WAIT_SECONDS) for name in pods))
        # A container is ready once it runs, and may write a little later.
        assert await notes.wait_words("order", 4, WAIT_SECONDS) == ["one", "side", "two", "main"]
        assert await notes.wait_words("start", 1, WAIT_SECONDS) == ["hooked"]
        await notes.wait_words("stop", 1, WAIT_SECONDS)
        volumes = world.home.path / "kubelet" / "pods"
        await world.wait_for(
            lambda: [file.read_text() for file in volumes.glob("*/volumes/*/v/a/b/f")] == ["x\n"], "a file by subpath"
        )
        logs = world.home.log_dir / "pods"
        await world.wait_for(lambda: list(logs.glob("default_rotates-*/c/0.log.*")), "a rotated log")
        await world.wait_for(lambda: any(size_of(file) for file in logs.glob("default_rotates-*/c/0.log")), "a new log")
        for name in pods:
            world.remove_manifest(name)
        await asyncio.gather(*(world.wait_gone(name) for name in pods))
        assert notes.words("stop") == ["up", "hooked", "term", "end"]
