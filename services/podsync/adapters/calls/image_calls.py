"""Carries out the calls that inspect and pull images, with `image_pulls`."""

from dataclasses import replace

from services.podsync.adapters.calls.pod_operations import PodOperations, PodView
from services.podsync.core.pod.events import CallDone
from services.podsync.core.pod.instructions import InspectImage, PullImage
from services.podsync.core.pod.results import ImageInspected, ImagePulled


async def inspect_image(operations: PodOperations, call: InspectImage, view: PodView, done: CallDone) -> CallDone:
    """Inspect the image and decide whether this pod may use it. Raises RuntimeCallError."""
    inspected = await operations.pulls.inspect(
        view.pod, call.image, call.policy, operations.cluster, backed_off=call.backed_off
    )
    result = ImageInspected(image=inspected.image, must_pull=inspected.must_pull)
    return replace(done, result=result, warnings=inspected.warnings)


async def pull_image(operations: PodOperations, call: PullImage, view: PodView, done: CallDone) -> CallDone:
    """Pull the image and inspect it. Raises RuntimeCallError, SandboxConfigError, PodEndsError."""
    sandbox = await operations.sandbox_message(view, call.sandbox_attempt)
    watched = operations.watch_pull(view.pod, call.container, call.image)
    pulled = await operations.pulls.pull(view.pod, call.image, call.policy, sandbox, operations.cluster, watched)
    result = ImagePulled(image=pulled.image, took=pulled.took, waited=pulled.waited)
    return replace(done, result=result, warnings=pulled.warnings)
