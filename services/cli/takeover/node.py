"""Acts on this machine for a takeover: files, systemd, the two kubelets, runtime and API server.

Nothing reports what a kubelet has reached, so the loop asks again every `INTERVAL_SECONDS`."""

import http.client
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path, PurePath

from msgspec import Struct

from services.cli.agent.local_agent import Agent, local_agent
from services.cli.systemd import control
from services.cli.systemd.unit import ServiceUnit
from services.cli.takeover.api_server import node_ready
from services.cli.takeover.containers import running_containers
from services.cli.takeover.evidence import evidence
from services.cli.takeover.plan import Intent, Kubelet, Observed, Step
from services.cli.takeover.record import Record, RecordFile
from services.cli.takeover.unit import DROP_IN, DROP_INS, UNIT, drop_in_text, loaded_kubelet
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.files.atomic import remove_unfinished, sync_directory, write_atomically

INTERVAL_SECONDS = 0.25
_MAX_HEALTHZ_SECONDS = 2.0  # to ask the kubelet's healthz
_MAX_NAMED_CONTAINERS = 3  # containers named in one line


class Target(Struct, frozen=True, kw_only=True):
    """The node's kubelet and what replaces it. `program`: the path of Bulkhead's kubelet. `config`: the effective
    configuration of the unit's flags, None = Bulkhead refuses it. `needs_api_server`: the API server must show the node
    as Ready."""

    program: str
    config: EffectiveConfig | None
    run_dir: str
    needs_api_server: bool
    drop_in: Path = DROP_INS / f"{UNIT}.d" / DROP_IN


class SystemdNode:
    """The real node on which `operation` acts."""

    def __init__(self, target: Target, record: RecordFile) -> None:
        self._target, self._record = target, record
        self._restarted = 0.0  # wall seconds of the newest restart; 0 = an earlier command requested it

    def observe(self, record: Record, *, restarted: bool) -> Observed:
        """Return the state of files and systemd and, where the wanted kubelet runs, what the node lacks."""
        target = self._target
        unit = control.read_unit(UNIT)
        text = _text(target.drop_in)
        running = running_kubelet(unit, target.program)
        forward = record.intent is Intent.TAKEOVER
        missing: list[str] = []
        if running is (Kubelet.BULKHEAD if forward else Kubelet.OWN):
            missing = self._lacks_under_bulkhead(unit, record) if forward else self._lacks_under_own(unit, record)
        return Observed(
            drop_in=text is not None,
            current=text == drop_in_text(target.program, record.words[1:]),
            loaded=loaded_kubelet(unit, target.program),
            reload_needed=unit.reload_needed,
            running=running,
            restarted=restarted,
            missing=tuple(missing),
            ending=restarted and unit.active_state == "deactivating",
        )

    def save(self, record: Record) -> None:
        """Save the record."""
        self._record.save(record)

    def forget(self) -> None:
        """Remove the record."""
        self._record.remove()

    def write(self, record: Record) -> None:
        """Write the drop-in."""
        path = self._target.drop_in
        created = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            write_atomically(path, drop_in_text(self._target.program, record.words[1:]).encode(), 0o644)
        except BaseException:  # also Ctrl-C: the caller removes no drop-in that was not written
            remove_unfinished(path)
            if created:
                path.parent.rmdir()
            raise
        sync_directory(path.parent.parent)

    def remove(self) -> None:
        """Remove the drop-in, and its directory if that is then empty."""
        path = self._target.drop_in
        path.unlink(missing_ok=True)
        remove_unfinished(path)
        sync_directory(path.parent)
        try:
            path.parent.rmdir()
        except OSError:  # the operator has drop-ins of their own in it
            return
        sync_directory(path.parent.parent)

    def reload(self) -> None:
        """Run `systemctl daemon-reload`."""
        control.reload()

    def restart(self) -> None:
        """Request a restart of the unit."""
        self._restarted = time.time()
        control.restart(UNIT)

    def now(self) -> float:
        """Return the seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def wait(self) -> None:
        """Wait until the next look."""
        time.sleep(INTERVAL_SECONDS)

    def describe(self, step: Step) -> str:
        """Return the step in the words of an operator."""
        return describe(step, self._target.drop_in)

    def evidence(self, record: Record) -> list[str]:
        """Return the state of the unit, and what the wanted kubelet logged last."""
        try:
            unit = control.read_unit(UNIT)
        except OperatorError as error:
            return [str(error)]
        config = self._target.config
        log_dir = config.log_dir if config is not None else find_places().log_dir
        of_agent = Path(log_dir) if record.intent is Intent.TAKEOVER else None
        return evidence(unit, UNIT, of_agent, self._restarted or unit.main_started)

    def ignore_interrupts(self) -> None:
        """Ignore Ctrl-C from now on: a roll-back is not interrupted."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _lacks_under_bulkhead(self, unit: ServiceUnit, record: Record) -> list[str]:
        try:
            with local_agent(self._target.run_dir) as agent:
                found = agent.report()
                problems = [line for line in found.problems if self._target.needs_api_server or not _of_cluster(line)]
                if problems:
                    return problems[:_MAX_NAMED_CONTAINERS]
                if self._target.needs_api_server and found.lease_age is None:
                    return ["the lease is not renewed yet"]
                unknown = self._not_recognised(agent, record)
        except OperatorError as error:
            return [str(error)]
        return unknown or self._not_ready(unit)

    def _not_recognised(self, agent: Agent, record: Record) -> list[str]:
        """Return the containers from before the switch that run and are in the status of no pod."""
        streams = agent.streams("pods.status", "runtime.pods")
        known = {one for status in (streams["pods.status"] or {}).values() for one in status.get("container_ids") or ()}
        if not self._target.needs_api_server:  # while the API server is away, its pods have no status yet
            pods = (streams["runtime.pods"] or {}).values()
            known |= {one["id"] for pod in pods for one in pod.get("containers") or ()}
        running = {one.id for one in running_containers(agent.config.container_runtime_endpoint)}
        lost = [f"{one.pod}/{one.name}" for one in record.containers if one.id in running - known]
        if not lost:
            return []
        more = f" and {len(lost) - _MAX_NAMED_CONTAINERS} more" if len(lost) > _MAX_NAMED_CONTAINERS else ""
        return [f"containers that are not recognised: {', '.join(sorted(lost)[:_MAX_NAMED_CONTAINERS])}{more}"]

    def _lacks_under_own(self, unit: ServiceUnit, record: Record) -> list[str]:
        if (unit.active_state, unit.sub_state) != ("active", "running"):
            return [f"{UNIT} is {unit.active_state} ({unit.sub_state}; journalctl -u {UNIT} shows why)"]
        config = self._target.config
        if config is None:
            return []
        if config.healthz_port and not _is_healthy(config.healthz_bind_address, config.healthz_port):
            return [f"port {config.healthz_port} does not answer /healthz with ok (journalctl -u {UNIT} shows why)"]
        return self._not_ready(unit, may_be_away=record.intent is Intent.ROLL_BACK)

    def _not_ready(self, unit: ServiceUnit, *, may_be_away: bool = False) -> list[str]:
        """Return what the node lacks until the main process itself has written a Node that is Ready. `may_be_away`: the
        API server may be unreachable, because its outage may be the reason for a roll-back."""
        config = self._target.config
        if config is None or not self._target.needs_api_server:
            return []
        try:
            seen = node_ready(config.kubeconfig, config.node_name)
        except OperatorError as error:
            return [] if may_be_away else [str(error)]
        if not seen.ready:
            return ["the Node is not Ready"]
        return [] if seen.written >= unit.main_started // 1 else ["the Node's status is not written yet"]


def describe(step: Step, drop_in: Path) -> str:
    """Return the step in the words of an operator."""
    match step:
        case Step.WRITE:
            return f"write {drop_in}"
        case Step.REMOVE:
            return f"remove {drop_in}"
        case Step.RESTART:
            return f"systemctl restart {UNIT}"
        case Step.WAIT:
            return "wait until the node is ready and every container is recognised"
    return step.value


def running_kubelet(unit: ServiceUnit, program: str) -> Kubelet:
    """Return which kubelet is the unit's main process. Bulkhead's is a script, whose path is the interpreter's
    argument. A Bulkhead in another directory counts neither as this one nor as the unit's kubelet: both a takeover and
    a give-back restart it."""
    if not unit.main_pid:
        return Kubelet.NONE
    try:
        words = Path(f"/proc/{unit.main_pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return Kubelet.NONE
    return kubelet_of(words, program)


def kubelet_of(words: Sequence[bytes], program: str) -> Kubelet:
    """Return which kubelet a process with this command line is."""
    if program.encode() in words[:3]:
        return Kubelet.BULKHEAD
    names = [PurePath(os.fsdecode(word)).name for word in words[:3]]
    return Kubelet.NONE if names[0].startswith("python") and "kubelet" in names[1:] else Kubelet.OWN


def _of_cluster(problem: str) -> bool:
    return problem.startswith(("API server", "the Node "))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _is_healthy(address: str, port: int) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    connection = http.client.HTTPConnection(host, port, timeout=_MAX_HEALTHZ_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
