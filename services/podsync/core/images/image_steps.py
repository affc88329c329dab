"""Decides the next call for the image of a container or volume: inspect, pull, or wait with a reason (pods.md 7.1, 7.3,
5.5.6).
The containers that mount the image of a volume show why it is absent; there is no event for it.
"""

from typing import Any

from msgspec import Struct

from services.podsync.core.images.image_reference import InvalidImageNameError, pull_policy, with_default_tag
from services.podsync.core.images.pull_backoff import PULL_ERRORS, pull_waits_until
from services.podsync.core.pod.instructions import Call, InspectImage, PullImage
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace

LOOK_AGAIN_SECONDS = 10.0  # until the next inspection: the runtime sends no event when an image is imported


class ImageNeed(Struct, frozen=True, kw_only=True):
    """Has the image that a container, or a volume of the pod, needs."""

    image: str  # as the spec names it
    policy: str
    container: str = ""
    volume: str = ""


def need_of_container(spec: dict[str, Any]) -> ImageNeed:
    """Return the image that the container needs."""
    return ImageNeed(image=str(spec.get("image", "")), policy=pull_policy(spec), container=str(spec["name"]))


def image_volumes(tracked: TrackedPod) -> list[ImageNeed]:
    """Return the images that the pod's image volumes need, mounted or not, in spec order."""
    needs = []
    for volume in tracked.spec.get("volumes") or ():
        source = volume.get("image")
        if source:
            image = str(source.get("reference") or "")
            policy = pull_policy({"image": image, "imagePullPolicy": source.get("pullPolicy")})
            needs.append(ImageNeed(image=image, policy=policy, volume=str(volume["name"])))
    return needs


def next_volume_image(step: Step, inputs: StepInputs) -> Call | None:
    """Return the next call for the image of an image volume; None = each is present, or waits."""
    for need in image_volumes(step.tracked):
        progress = step.tracked.progress("", need.volume)
        if progress.image is not None:
            continue
        if progress.retry_at > inputs.now:
            step.wake_earlier(progress.retry_at)
            continue
        call = find_image(step, need, inputs)
        if call is not None:
            return call
    return None


def find_image(step: Step, need: ImageNeed, inputs: StepInputs) -> Call | None:
    """Return the next image call, or None with the reason to wait in the step. Calls, messages and events name the
    image as the spec does; the runtime alone gets the name with its tag."""
    tracked, image = step.tracked, need.image
    try:
        with_default_tag(image)
    except InvalidImageNameError as error:
        _show(step, need, "InvalidImageName", str(error), ("Warning", "InspectFailed", str(error)), inputs.now)
        return None
    until = pull_waits_until(tracked, image)
    if need.policy != "Always" and not tracked.progress(need.container, need.volume).must_pull:
        return InspectImage(
            uid=tracked.uid,
            container=need.container,
            volume=need.volume,
            image=image,
            policy=need.policy,
            backed_off=until > inputs.now,
        )
    if need.policy == "Never":
        message = f'Container image "{image}" is not present with pull policy of Never'
        _show(step, need, "ErrImageNeverPull", message, ("Warning", "ErrImageNeverPull", message), inputs.now)
        _look_again(step, need, inputs.now + LOOK_AGAIN_SECONDS)
        return None
    if until > inputs.now:
        _wait_for_pull(step, need, image, until, inputs)
        return None
    step.events.append(("Normal", "Pulling", f'Pulling image "{image}"', need.container))
    return PullImage(
        uid=tracked.uid,
        container=need.container,
        volume=need.volume,
        image=image,
        sandbox_attempt=tracked.sandboxes[0].attempt,
        policy=need.policy,
    )


def _wait_for_pull(step: Step, need: ImageNeed, image: str, until: float, inputs: StepInputs) -> None:
    """Show as in the kubelet first why the pull failed, then that it waits."""
    back_off = step.tracked.saved.image_backoff[image]
    shown_until = until - back_off.seconds / 2
    if inputs.now < shown_until and _shown_reason(step.tracked, need) in PULL_ERRORS:
        until = shown_until
    else:
        event = ("Normal", "BackOff", f'Back-off pulling image "{image}"')
        _show(step, need, "ImagePullBackOff", f"{event[2]}: {back_off.message}", event, inputs.now)
    if need.policy == "Always":
        step.wake_earlier(until)
    else:
        _look_again(step, need, min(until, inputs.now + LOOK_AGAIN_SECONDS))


def _look_again(step: Step, need: ImageNeed, when: float) -> None:
    # After the wait the same inspection is not a repeated call, which would be delayed.
    tracked = replace(step.tracked, retry=replace(step.tracked.retry, last_done=None))
    progress = replace(tracked.progress(need.container, need.volume), must_pull=False, retry_at=when)
    step.tracked = tracked.with_progress(progress, need.container, need.volume)
    step.wake_earlier(when)


def _shown_reason(tracked: TrackedPod, need: ImageNeed) -> str:
    shown = tracked.progress(need.container, need.volume).reason
    return shown[0] if shown else ""


def _show(step: Step, need: ImageNeed, reason: str, message: str, event: tuple[str, str, str], now: float) -> None:
    """Show why the image is absent: for a container in the step, for a volume in the pod."""
    if need.volume:
        progress = step.tracked.progress("", need.volume)
        if progress.records_events((reason, message), now):
            progress = replace(progress, reason=(reason, message), events_at=now)
            step.tracked = step.tracked.with_progress(progress, "", need.volume)
            step.events.append((*event, ""))
        return
    step.reasons[need.container] = (reason, message)
    step.events += [(*event, need.container), error_event(need.container, reason)]


def error_event(container: str, text: str) -> tuple[str, str, str, str]:
    """Return the event `Failed` of a container that cannot be started."""
    return ("Warning", "Failed", f"Error: {text}", container)
