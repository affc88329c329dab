"""What must never happen to resource claims of pods, as the runtime and the driver show it from outside: a container
runs only with its prepared claims, and no claim is unprepared under it.
"""

from collections.abc import Callable

from shared.model.runtime import ContainerState
from tests.simulation.claim_driver import SimulatedDriver, cdi_name
from tests.simulation.oracle import Oracle
from tests.simulation.runtime import SimulationRuntime
from tests.simulation.workload import PodPlan


class ClaimOracle:
    """Looks at each container that begins to run, and at each claim that is unprepared. `plan_of` returns the plan of a
    pod."""

    def __init__(
        self,
        oracle: Oracle,
        runtime: SimulationRuntime,
        driver: SimulatedDriver,
        plan_of: Callable[[str], PodPlan | None],
    ) -> None:
        self._oracle, self._runtime, self._driver, self._plan_of = oracle, runtime, driver, plan_of
        driver.unprepared = self._unprepared

    def started(self, uid: str, name: str, container_id: str) -> None:
        """Look at a container that begins to run."""
        plan = self._plan_of(uid)
        if plan is None or not plan.claims:
            return
        what = f"container {name} of pod {uid[-12:]}"
        uids = {claim: claim_uid for claim_uid, claim in self._driver.prepared.items()}
        if missing := sorted(set(plan.claims) - uids.keys()):
            self._oracle.violated(f"{what} is started, and the claim {missing[0]} is not prepared")
            return
        config = self._runtime._containers[container_id].config
        given = {device["name"] for device in config.get("CDI_devices") or ()}
        wanted = {cdi_name(uids[claim]) for claim in plan.claims} if name == "c0" else set()
        if given != wanted:
            self._oracle.violated(f"{what} has the CDI devices {sorted(given)} instead of {sorted(wanted)}")

    def _unprepared(self, claim: str) -> None:
        """A claim goes: no container of a pod that uses it may run."""
        for uid, pod in self._runtime.pods().items():
            plan = self._plan_of(uid)
            if plan is None or claim not in plan.claims:
                continue
            running = [found.name for found in pod.containers if found.state is ContainerState.RUNNING]
            if running:
                self._oracle.violated(f"claim {claim} is unprepared under {running[0]} of pod {uid[-12:]}")
