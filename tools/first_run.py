"""`make run` starts an agent in the foreground with its own home and an example pod, and prints a table of the pods.

Decides nothing about pods. It makes the home, starts supervisord, imports the example images into the embedded
containerd, watches the read-only port until the pods of the manifest directory run, and prints where to look next."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.agent.places import find_arguments, find_places
from shared.config.effective import EffectiveConfig
from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError
from tools import containerd
from tools.drained_console import DrainedConsole
from tools.home import Home
from tools.leftovers import agent_processes_of, running_containers
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT
from tools.prerequisites import missing_packages

MAX_START_SECONDS = 60.0  # until the pods run
LOOK_SECONDS = 0.1  # between two requests, because the read-only port has no watch
MAX_STOP_SECONDS = 30.0
BIN = Path(sys.executable).parent


class AgentEndedError(Exception):
    """supervisord has ended by itself; the text is what bootstrap printed on its console."""


@dataclass
class Agent:
    """The running agent: supervisord in a session of its own, so that Ctrl-C reaches it only through us."""

    home: Home
    config: EffectiveConfig
    supervisord: subprocess.Popen[bytes]
    console: DrainedConsole

    @classmethod
    def start(cls, home: Home, config: EffectiveConfig) -> "Agent":
        """Start supervisord in its own session. `ended` returns the text of its console."""
        command = [str(BIN / "supervisord"), "-n", "-s", "-c", str(home.supervisord_conf)]
        # A first run changes nothing of its machine but what `make clean` removes.
        environment = {"BULKHEAD_KEEP_KERNEL_SETTINGS": "1", **os.environ, "BULKHEAD_HOME": str(home.path)}
        home.console.unlink(missing_ok=True)
        console = DrainedConsole(home.console)
        try:
            supervisord = subprocess.Popen(
                command, env=environment, stdout=console.writer, stderr=console.writer, start_new_session=True
            )
        finally:
            console.close_writer()
        return cls(home, config, supervisord, console)

    def ended(self) -> AgentEndedError:
        """Return the error to raise once supervisord has ended."""
        return AgentEndedError(self.console.text())

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Return whether the condition came true in time. Raises AgentEndedError when supervisord ends meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.supervisord.poll() is not None:
                raise self.ended()
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def import_images(self, seconds: float) -> None:
        """Import the example images into the embedded containerd as soon as it answers."""
        embedded = self.config.embedded_containerd
        if embedded is None:
            return
        if not self.wait_for(lambda: containerd.answers(embedded.socket), seconds):
            log = self.home.log_dir / "containerd.out"
            raise OperatorError("the embedded containerd does not answer", where=embedded.socket, remedy=f"read {log}")
        containerd.import_images(embedded.socket, self.home.path, (BUSYBOX_CONTENT, PAUSE_CONTENT))

    def pods(self) -> list[dict[str, Any]]:
        """Return what the read-only port answers; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.read_only_url}/pods", timeout=2) as answer:
                return list(json.load(answer).get("items") or [])
        except (OSError, http.client.HTTPException, ValueError):
            return []

    def wait_for_pods(self, count: int, seconds: float) -> list[dict[str, Any]]:
        """Return the pods as soon as so many run, else as they were read last within `seconds`. Raises AgentEndedError
        when supervisord ends meanwhile."""
        pods: list[dict[str, Any]] = []

        def enough_run() -> bool:
            pods[:] = self.pods()
            return sum(map(is_running, pods)) >= count

        self.wait_for(enough_run, seconds)
        return pods

    @property
    def read_only_url(self) -> str:
        return f"http://{self.config.address}:{self.config.read_only_port}"

    def stop(self) -> None:
        """Stop the agent; containers keep running. A second Ctrl-C does not end the wait, which has a limit."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.supervisord.send_signal(signal.SIGTERM)
        try:
            self.supervisord.wait(MAX_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.supervisord.kill()
            self.supervisord.wait()


def check_machine(home: Home) -> None:
    """Raise OperatorError, in one line, for what would keep the agent from starting."""
    if os.geteuid() != 0:
        raise OperatorError(
            "a node agent mounts, makes cgroups and starts containers: it needs root", remedy="sudo make run"
        )
    if missing := missing_packages("run"):
        raise OperatorError(f"missing on this machine: {' '.join(missing)}", remedy="make deps installs them on Debian")
    home.check()
    if running := agent_processes_of(home.path):
        raise OperatorError(
            f"an agent with this home is running already (pids {' '.join(map(str, sorted(running)))})",
            where=f"BULKHEAD_HOME={home.path}",
            remedy=f"stop it: {BIN}/supervisorctl -c {home.supervisord_conf} shutdown, or make clean",
        )


def is_running(pod: dict[str, Any]) -> bool:
    """Return whether the pod runs and has an address."""
    status = pod.get("status", {})
    return status.get("phase") == "Running" and bool(status.get("podIP"))


def show(agent: Agent, pods: list[dict[str, Any]], seconds: float) -> None:
    """Print the table of pods, and where to look next."""
    rows = [("POD", "PHASE", "IP", "NODE", "CONTAINERS")]
    for pod in pods:
        metadata, status = pod.get("metadata", {}), pod.get("status", {})
        rows.append(
            (
                f"{metadata.get('namespace')}/{metadata.get('name')}",
                status.get("phase", "-"),
                status.get("podIP", "-"),
                pod.get("spec", {}).get("nodeName", agent.config.node_name),
                ", ".join(_describe(container) for container in status.get("containerStatuses") or ()),
            )
        )
    print(f"After {seconds:.1f} s:\n")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()
    for words, command in where_to_look(agent, pods):
        print(f"  {words:22} {command}")
    print("\nCtrl-C stops the agent; the pods stay.", flush=True)


def _describe(container: dict[str, Any]) -> str:
    for state, detail in (container.get("state") or {}).items():
        reason = detail.get("reason", "")
        return f"{container.get('name')}: {state}" + (f" ({reason})" if reason else "")
    return str(container.get("name"))


def where_to_look(agent: Agent, pods: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what to look at next, each with the command to type."""
    home, config = agent.home, agent.config
    looks: list[tuple[str, str]] = []
    for pod in [pod for pod in pods if is_running(pod)][:1]:
        metadata, container = pod["metadata"], pod["spec"]["containers"][0]
        directory = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        looks.append(("ask the pod", f"curl http://{pod['status']['podIP']}/"))
        looks.append(("its log", f"tail -f {config.pod_logs_dir}/{directory}/{container['name']}/0.log"))
    commands = f"BULKHEAD_HOME={home.path} {BIN}/bulkhead"
    looks += [
        ("all pods", f"curl {agent.read_only_url}/pods"),
        ("the seven processes", f"{commands} status"),
        ("kill one", f"kill -9 $({BIN}/supervisorctl -c {home.supervisord_conf} pid podsync)"),
        ("their logs", f"tail -F {home.log_dir}/*.log"),
        ("more pods", f"cp your-pod.yaml {home.manifests}/"),
        ("settings", f"{home.path}/kubelet.yaml"),
    ]
    return looks


def explain_delay(agent: Agent, expected: int, pods: list[dict[str, Any]]) -> None:
    """Print what is known of pods that do not run yet."""
    missing = f"{sum(map(is_running, pods))} of {expected} pods run after {MAX_START_SECONDS:.0f} s"
    print(f"{missing}; the agent goes on trying.")
    if len(pods) < expected:
        print(f"  not taken on: see {agent.home.log_dir}/sources.log and {agent.home.log_dir}/podsync.log")
    for pod in pods:
        status = pod.get("status", {})
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                print(f"  {container['name']}: {waiting.get('reason')}: {waiting.get('message', '')}")
        if message := status.get("message"):
            print(f"  {pod['metadata']['name']}: {message}")


def print_farewell(agent: Agent) -> None:
    """Print, after the stop, what still runs and how to remove it."""
    embedded = agent.config.embedded_containerd
    left = running_containers(Path(embedded.state)) if embedded else []
    print("\nThe agent is stopped.")
    if left:
        noun = "container" if len(left) == 1 else "containers"
        print(f"Its pods are still running ({len(left)} {noun}), as they should.")
    print("  start it again     make run\n  remove everything  make clean")


def manifests_in(static_pod_path: str) -> list[Path]:
    """Return the files whose pods are to run; none where the configuration names no directory."""
    return [path for path in Path(static_pod_path).glob("[!.]*") if path.is_file()] if static_pod_path else []


def run(home: Home) -> None:
    """Do the whole first run; return when the agent has ended."""
    check_machine(home)
    home.make()
    os.environ["BULKHEAD_HOME"] = str(home.path)
    resolved = evaluate(find_arguments(find_places()))
    config = resolved.config
    for remark in resolved.remarks:
        print(f"note: {remark}")
    print(f"Starting the agent; all it writes is in {home.path}.", flush=True)
    began = time.monotonic()
    agent = Agent.start(home, config)
    try:
        agent.import_images(MAX_START_SECONDS)
        home.add_example()
        expected = len(manifests_in(config.static_pod_path))
        pods = agent.wait_for_pods(expected, MAX_START_SECONDS)
        if sum(map(is_running, pods)) < expected:
            explain_delay(agent, expected, pods)
        show(agent, pods, time.monotonic() - began)
        agent.supervisord.wait()
        raise agent.ended()
    except KeyboardInterrupt:
        agent.stop()
        print_farewell(agent)
    finally:
        if agent.supervisord.poll() is None:
            agent.stop()


def main() -> None:
    """Run with the home that BULKHEAD_HOME names; bad input is one line on stderr and exit 1."""
    # A shell without job control starts this program with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        run(Home(Path(os.environ.get("BULKHEAD_HOME") or "/var/lib/bulkhead").absolute()))
    except (OperatorError, ConfigurationRefusedError) as error:
        print(f"bulkhead: {error}", file=sys.stderr)
        sys.exit(1)
    except AgentEndedError as error:
        sys.exit(
            "\n".join(filter(None, (str(error), "bulkhead: the agent has ended; its logs are in its home's log/")))
        )


if __name__ == "__main__":
    main()
