"""Answers GetPodPreview: admission and start of a pod as they would be now. Reads, and changes nothing."""

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

SECONDS = 2.0  # that the runtime, or sources, has for an answer: together less than a command waits
_IMAGES_AT_ONCE = 4


class PodPreviews:
    """`providers`: the credential provider plugins, in their order."""

    def __init__(self, bus: Bus, core: PodSync, calls: RuntimeCalls, providers: Sequence[CredentialProvider]) -> None:
        self._core, self._calls, self._providers = core, calls, providers
        bus.answer(GetPodPreview, self.answer)

    async def answer(self, request: GetPodPreview) -> PodPreview:
        """Answer the request. Whatever does not answer in time is not known."""
        pod = request.pod
        (facts, problem), images = await asyncio.gather(self._facts(pod), self._images(image_names(pod)))
        state = self._core.node_state  # from here on without waiting: one moment of it
        admissions = state.admissions
        problems = [problem] if problem else []
        if not state.network_ready and not (pod.get("spec") or {}).get("hostNetwork"):
            problems.append(f"network is not ready: {state.network_message}")
        inputs = PreviewInputs(
            pod=pod,
            verdict=admissions.preview(pod, request.source),
            view=admissions.view(admissions.node),
            others={record.uid: record.saved.pod for record in admissions.others(pod, request.source)},
            facts=facts,
            paths=_paths(facts.root_dir, uid(pod)),
            images=images,
            providers=self._providers,
            waits_for=_waits_for(self._core),
            problems=tuple(problems),
        )
        return await asyncio.to_thread(preview, inputs) if is_large(pod) else preview(inputs)

    async def _facts(self, pod: Object) -> tuple[NodeFacts, str]:
        """The node's facts for this pod, and what is wrong with its RuntimeClass."""
        facts, handler, problem = self._calls.facts_now(), "", ""
        with contextlib.suppress(RuntimeCallError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._calls.cgroups.driver()
        facts = replace(facts, cgroup_driver=self._calls.cgroups.facts.cgroup_driver)
        try:
            async with asyncio.timeout(SECONDS):
                handler = await self._calls.cluster.runtime_handler(pod)
        except SandboxConfigError as error:
            problem = f"Failed to create pod sandbox: {error.message}"
        except TimeoutError:
            problem = "the RuntimeClass is not known: sources did not answer"
        return for_handler(facts, self._core.node_state.runtime_handlers, handler), problem

    async def _images(self, names: Sequence[str]) -> dict[str, ImageStatus | None]:
        """Which images the runtime has; without those on which it did not answer in time."""
        found: dict[str, ImageStatus | None] = {}
        turns = asyncio.Semaphore(_IMAGES_AT_ONCE)

        async def look(image: str) -> None:
            async with turns:
                with contextlib.suppress(RuntimeCallError):
                    found[image] = await self._calls.runtime.image_status(image)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await asyncio.gather(*map(look, names))
        return dict(found)


def _paths(root_dir: str, pod_uid: str) -> PodPaths:
    names = {"volumes": VOLUMES, "devices": DEVICES, "containers": CONTAINERS, "etc_hosts": ETC_HOSTS}
    return PodPaths(**{field: str(pod_directory(root_dir, pod_uid) / name) for field, name in names.items()})


def _waits_for(core: PodSync) -> str:
    """The fact that admission lacks."""
    admissions = core.node_state.admissions
    if not admissions.runtime_known:
        return "the runtime"
    if not admissions.node_known:
        return "the Node, which the API server has not shown yet"
    return "the sources, which have not listed all pods yet"
