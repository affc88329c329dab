"""Answers GetPodPreview: admission and start of a pod as they would be now. It reads, and changes nothing."""

import asyncio
import contextlib
from collections.abc import Sequence

from bus.interface import Bus
from bus.messages.pod_preview import GetPodPreview, PodPreview
from services.podsync.adapters.calls.runtime_calls import RuntimeCalls
from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.runtime_handlers import for_handler
from services.podsync.core.machine import PodSync
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.preview import PodPaths, PreviewInputs, image_names, preview
from shared.config.effective import CredentialProvider
from shared.cri.interface import ImageStatus, RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.objects import Object, uid
from shared.pods.directory import CONTAINERS, DEVICES, ETC_HOSTS, VOLUMES, pod_directory
from shared.podspec.containers import is_large

TIMEOUT_SECONDS = 2.0  # for an answer of the runtime or of sources: together less than a command waits
_MAX_INSPECTIONS = 4  # of images at the same time


class PodPreviews:
    """Answers requests for previews. `providers`: the credential provider plugins, in their order."""

    def __init__(self, bus: Bus, core: PodSync, calls: RuntimeCalls, providers: Sequence[CredentialProvider]) -> None:
        self._core, self._calls, self._providers = core, calls, providers
        bus.answer(GetPodPreview, self.answer)

    async def answer(self, request: GetPodPreview) -> PodPreview:
        """Answer the request. What does not answer in time counts as not known."""
        pod = request.pod
        (facts, problem), images = await asyncio.gather(self._facts(pod), self._images(image_names(pod)))
        state = self._core.node_state  # no await from here on, so that all is of one moment
        admissions = state.admissions
        problems = [problem] if problem else []
        if not state.network_ready and not (pod.get("spec") or {}).get("hostNetwork"):
            problems.append(f"network is not ready: {state.network_message}")
        inputs = PreviewInputs(
            pod=pod,
            verdict=admissions.preview(pod, request.source),
            view=admissions.view(admissions.node),
            others={other.uid: other.saved.pod for other in admissions.others(pod, request.source)},
            facts=facts,
            paths=_paths(facts.root_dir, uid(pod)),
            images=images,
            providers=self._providers,
            waits_for=_waits_for(self._core, pod),
            problems=tuple(problems),
        )
        return await asyncio.to_thread(preview, inputs) if is_large(pod) else preview(inputs)

    async def _facts(self, pod: Object) -> tuple[NodeFacts, str]:
        """Return the node's facts for this pod, and the problem with its RuntimeClass, "" = none."""
        handler, problem = "", ""
        facts = replace(self._calls.facts_now(), shared_cpus=self._core.shared_cpus())
        with contextlib.suppress(RuntimeCallError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._calls.cgroups.driver()
        facts = replace(facts, cgroup_driver=self._calls.cgroups.facts.cgroup_driver)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                handler = await self._calls.cluster.runtime_handler(pod)
        except SandboxConfigError as error:
            problem = f"Failed to create pod sandbox: {error.message}"
        except TimeoutError:
            problem = "the RuntimeClass is not known: sources did not answer"
        return for_handler(facts, self._core.node_state.runtime_handlers, handler), problem

    async def _images(self, names: Sequence[str]) -> dict[str, ImageStatus | None]:
        """Inspect these images; the result is without those on which the runtime did not answer in time."""
        statuses: dict[str, ImageStatus | None] = {}
        turns = asyncio.Semaphore(_MAX_INSPECTIONS)

        async def inspect(image: str) -> None:
            async with turns:
                with contextlib.suppress(RuntimeCallError):
                    statuses[image] = await self._calls.runtime.image_status(image)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*map(inspect, names))
        return statuses


def _paths(root_dir: str, pod_uid: str) -> PodPaths:
    names = {"volumes": VOLUMES, "devices": DEVICES, "containers": CONTAINERS, "etc_hosts": ETC_HOSTS}
    return PodPaths(**{field: str(pod_directory(root_dir, pod_uid) / name) for field, name in names.items()})


def _waits_for(core: PodSync, pod: Object) -> str:
    """Return which fact admission of the pod waits for."""
    admissions = core.node_state.admissions
    if not admissions.runtime_known:
        return "the runtime"
    if not admissions.node_known:
        return "the Node, which the API server has not shown yet"
    if plugins := admissions.awaited_by(pod):
        return plugins
    return "the sources, which have not listed all pods yet"
