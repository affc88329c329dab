"""The node: the real services in the simulated world, their starts and kills, and what users do to it."""

import asyncio
import contextvars
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import orjson

from services.frame.launch import Context
from services.pleg.core.node_observation import MachineReading
from services.pleg.service import Pleg
from services.podsync.service import PodSyncService
from services.sources.adapters.clients import Clients as SourcesClients
from services.sources.service import Sources
from services.status.adapters.clients import Clients as StatusClients
from services.status.core.ready import MAIN_LOOPS
from services.status.service import Status
from services.volume.service import Volume
from shared.config.effective import EffectiveConfig, OfflinePods
from shared.kube import paths
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from tests.service.pleg.world import READING, StillUsage
from tests.service.status.node_stage import StillHost
from tests.simulation.api import SimulationApi
from tests.simulation.claim_driver import SimulatedDriver
from tests.simulation.claim_oracle import ClaimOracle
from tests.simulation.device_plugin import SimulatedPlugin
from tests.simulation.faults import SERVICES, BusFaults, ClockStep, Fault, Kill, MachineBoots, OtherAgentRuns
from tests.simulation.loop import INCARNATION, ApiClock, Incarnation, Killed, SimulationLoop
from tests.simulation.network import SimulationNetwork, Transfer
from tests.simulation.oracle import Oracle
from tests.simulation.other_agent import OtherAgent
from tests.simulation.pidfds import SimulationPidfds
from tests.simulation.placement import CONFIGURED
from tests.simulation.placement_oracle import PlacementOracle
from tests.simulation.runtime import SimulationRuntime
from tests.simulation.story import Story
from tests.simulation.users import NAME, Users
from tests.simulation.volumes import SimulatedCalls, Volumes
from tests.simulation.workload import IMAGES, Workload

USER = f"system:node:{NAME}"
STUBS = ("bootstrap", "server")
ARMED_SECONDS = 5.0  # a kill that waits for a crash point waits no longer


async def read_machine(nodefs: str) -> MachineReading:
    """The machine, which never changes."""
    return READING


class Node:
    """One run, in an empty working directory: paths are relative, so that they are equal in all runs."""

    def __init__(self, loop: SimulationLoop, workload: Workload, faults: tuple[Fault, ...], seed: int) -> None:
        self.clock, self.loop, self.workload, self.faults = loop.clock, loop, workload, faults
        self.story = Story(lambda: self.clock.now)
        self.oracle = Oracle(self.story)
        self.root = Path("root")
        self.manifests = Path("manifests")
        self.manifests.mkdir(parents=True, exist_ok=True)
        self.host = StillHost()
        self.volumes = Volumes(self.root, self.story, self.oracle)
        self.api = SimulationApi(ApiClock(self.clock), self.story, Random(f"{seed} api"), faults)
        self.users = Users(workload, self.story, self.oracle, self.api, self.manifests)
        self.runtime = SimulationRuntime(
            self.clock,
            self.story,
            self.oracle,
            Random(f"{seed} runtime"),
            run_of=self.users.run_of,
            faults=faults,
            images=[image for image in IMAGES if image not in workload.late_images],
            pullable=IMAGES,
            events=workload.runtime_events,
        )
        self.oracle.runtime = self.users.runtime = self.runtime
        self.boot = "boot-1"  # the identity of the machine's start, and of the agent's
        self.plugin: SimulatedPlugin | None = None
        if workload.plugin is not None:
            self.plugin = SimulatedPlugin(
                workload.plugin, self.story, self.oracle, Random(f"{seed} device plugin"), faults
            )
            self.runtime.placement = PlacementOracle(self.oracle, self.runtime, self.users.plan_of)
            (self.root / "device-plugins").mkdir(parents=True, exist_ok=True)
        self.driver: SimulatedDriver | None = None
        if any(pod.claims for pod in workload.pods):
            self.driver = SimulatedDriver(self.story, self.oracle, Random(f"{seed} driver"), faults)
            self.runtime.claims = ClaimOracle(self.oracle, self.runtime, self.driver, self.users.plan_of)
        self.other_agent = OtherAgent(self.runtime, self.story)
        self._bus_faults = BusFaults(faults)
        self.network = SimulationNetwork(self.clock, self.story, self._transfer)
        self.network.on_publish = self.oracle.published
        changed = self.api.store._changed

        def observed(change: Any) -> None:
            self.oracle.changed(change)
            self.story.note("api", change.key, orjson.dumps(change.after, option=orjson.OPT_SORT_KEYS))
            changed(change)

        self.api.store._changed = observed  # type: ignore[method-assign]
        self.incarnations: dict[str, Incarnation] = {}
        self.dead: list[Incarnation] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.services: dict[str, Any] = {}
        self.mutate: Callable[[str, Any], None] = lambda _name, _service: None
        self._numbers: dict[str, int] = {}
        self._down: dict[str, int] = {}
        self.config = EffectiveConfig(
            node_name=NAME,
            root_dir=str(self.root),
            run_dir="run",
            log_dir="",
            cert_dir="",
            kubeconfig="kubeconfig",
            pod_logs_dir="logs",
            container_log_max_size=-1,  # there are no files to rotate
            cgroups_per_qos=False,
            offline_pods=OfflinePods() if workload.offline else None,
            static_pod_path=str(self.manifests) if any(pod.static for pod in workload.pods) else "",
            **(CONFIGURED if workload.plugin is not None else {}),
        )

    # -- incarnations ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start everything and plan what will happen."""
        self.api.put(paths.node(NAME), {"metadata": {"name": NAME}})
        self._write_credentials()
        for service in (*STUBS, *SERVICES):
            self.live(service)
        self.api.begin()
        self.users.begin()
        if self.plugin is not None:
            self.plugin.begin()
        if self.driver is not None:
            self.driver.begin()
        for fault in self.faults:
            if isinstance(fault, Kill):
                self._later(fault.at, self._arm, fault)
            elif isinstance(fault, ClockStep):
                self._later(fault.at, self._set_clock, fault)
            elif isinstance(fault, OtherAgentRuns):
                self._later(fault.at, self._give_node, fault)
            elif isinstance(fault, MachineBoots):
                self._later(fault.at, self._lose_power, fault)

    def live(self, service: str) -> None:
        """A new incarnation."""
        if service in self.incarnations:
            return
        number = self._numbers[service] = self._numbers.get(service, 0) + 1
        incarnation = Incarnation(service, number, self._died)
        self.incarnations[service] = incarnation
        self.tasks.append(
            self.loop.create_task(self._live(incarnation), name=f"{service} {number}", context=incarnation.context)
        )

    async def _live(self, incarnation: Incarnation) -> None:
        bus = self.network.bus_of(incarnation)
        context = Context(incarnation.service, self.config, bus, self.clock, asyncio.Event())
        if incarnation.service in STUBS:
            await bus.start()
            self.network.beats(bus)
            while True:
                bus.progress(MAIN_LOOPS[incarnation.service])
                await asyncio.sleep(5.0)
        try:
            service = self._build(context)
            await bus.start()
            self.network.beats(bus)
            await service.run()
        except Killed:
            raise
        except BaseException as error:
            if not incarnation.dead:
                text = "".join(traceback.format_exception(error)[-12:])
                self.oracle.violated(f"{incarnation.service} ended by itself: {type(error).__name__}: {error}\n{text}")
            raise

    def _build(self, context: Context) -> Any:
        service: Any
        match context.service:
            case "sources":
                client = self.api.client(USER)
                service = Sources(context, SourcesClients(node=client, objects=client))
            case "podsync":
                service = PodSyncService(context, self.runtime)
            case "pleg":
                service = Pleg(
                    context,
                    self.runtime,
                    watches=lambda on_exit: SimulationPidfds(self.runtime, on_exit),
                    machine=read_machine,
                    usage=StillUsage(context.clock),
                )
            case "volume":
                service = Volume(context, calls=SimulatedCalls(self.volumes, self.story, self.oracle))
            case _:
                clients = StatusClients(*(self.api.client(USER) for _ in range(6)))
                service = Status(context, clients, host=self.host, generation="g", chance=lambda: 0.5)
        self.services[context.service] = service
        self.mutate(context.service, service)
        return service

    def _died(self, incarnation: Incarnation) -> None:
        if self.incarnations.get(incarnation.service) is incarnation:
            del self.incarnations[incarnation.service]
        self.dead.append(incarnation)
        self.network.kill(incarnation.service)
        self.runtime.bury(incarnation)
        self.api.bury(incarnation)
        self.story.add("fault", f"{incarnation.service} {incarnation.number} is killed")
        self._later(self._down.pop(incarnation.service, 1) or 0.05, self._again, incarnation.service)

    def _write_credentials(self) -> None:
        """As bootstrap does; records for a start without API server name them."""
        if self.workload.offline:
            path = credentials_path(self.config.run_dir)
            path.parent.mkdir(parents=True)
            path.write_bytes(encode_credentials(Credentials(version=1, server="https://192.0.2.1:6443")))

    def _again(self, service: str) -> None:
        self.story.add("fault", f"{service} begins again")
        self.live(service)

    def _arm(self, kill: Kill) -> None:
        incarnation = self.incarnations.get(kill.service)
        if incarnation is None:
            return
        self._down[kill.service] = kill.down  # type: ignore[assignment]
        if kill.crash_at:
            incarnation.crash_at = kill.crash_at
            self._later(ARMED_SECONDS, incarnation.die)
        else:
            incarnation.lines = kill.lines
            incarnation.kill_in = kill.steps
            self._later(ARMED_SECONDS, incarnation.die)

    def _give_node(self, fault: OtherAgentRuns) -> None:
        for service in SERVICES:
            self._down[service] = fault.seconds  # type: ignore[assignment]
            if (incarnation := self.incarnations.get(service)) is not None:
                incarnation.die()
        self.other_agent.take_node(fault.pod)

    def _lose_power(self, fault: MachineBoots) -> None:
        self.story.add("fault", f"the machine has no power for {fault.seconds:g} s")
        for service in (*STUBS, *SERVICES):
            self._down[service] = fault.seconds  # type: ignore[assignment]
            if (incarnation := self.incarnations.get(service)) is not None:
                incarnation.die()
        self.runtime.lose_power(keeps=fault.keeps)
        if self.driver is not None:
            self.driver.lose_power()
        if not fault.keeps:
            self.oracle.runtime_is_empty()
        shutil.rmtree(self.config.run_dir, ignore_errors=True)
        self._write_credentials()
        self.boot = f"boot-{int(self.boot[5:]) + 1}"

    def is_armed_at(self, name: str) -> bool:
        """Return whether the incarnation that runs now would be killed at this point."""
        incarnation = INCARNATION.get()
        wanted = incarnation.crash_at if incarnation is not None else None
        return bool(wanted) and (name == wanted or name.startswith(f"{wanted}."))

    def crash_point(self, name: str) -> bool:
        """An incarnation comes to a named point, where it may be killed."""
        incarnation = INCARNATION.get()
        if incarnation is None:
            return False
        if incarnation.dead:
            raise Killed
        if self.is_armed_at(name):
            self.story.add("fault", f"at {name}")
            incarnation.die()
            raise Killed
        return False

    def _transfer(self, sender: str, receiver: str, stream: str) -> Transfer:
        transfer, fault = self._bus_faults.transfer(self.story.seconds, sender, receiver, stream)
        if fault is not None:
            self.story.add("fault", f"{stream} from {sender} to {receiver}: {fault.kind} {fault.delay or ''}")
        return transfer

    def _set_clock(self, fault: ClockStep) -> None:
        self.story.add("fault", f"the clock is set by {fault.seconds:+g} s")
        self.clock.step(fault.seconds)

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        self.loop.call_later(seconds, do, *args, context=contextvars.Context())
