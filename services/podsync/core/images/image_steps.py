"""The next call for the image of a container or volume: look, pull, or wait with a reason (pods.md 7.1, 7.3, 5.5.6).

Why the image of a volume is not there is shown by the containers that mount it, and by no event of its own.
"""

from dataclasses import dataclass, replace
from typing import Any

from services.podsync.core.images.image_reference import InvalidImageNameError, pull_policy, with_default_tag
from services.podsync.core.images.pull_backoff import PULL_ERRORS, pull_waits_until
from services.podsync.core.pod.instructions import Call, InspectImage, PullImage
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.retry import container_later, volume_key
from services.podsync.core.pod.situation import Step, World

LOOK_AGAIN_SECONDS = 10.0  # the image may be imported meanwhile; the runtime sends no event of that


@dataclass(frozen=True, kw_only=True)
class ImageNeed:
    """Whose image is needed: a container's, or a volume's of the pod."""

    image: str  # as the spec names it
    policy: str
    container: str = ""
    volume: str = ""

    @property
    def key(self) -> str:
        """Among the images of the pod."""
        return self.container or volume_key(self.volume)


def need_of_container(spec: dict[str, Any]) -> ImageNeed:
    """The need of this container."""
    return ImageNeed(image=str(spec.get("image", "")), policy=pull_policy(spec), container=str(spec["name"]))


def image_volumes(record: PodRecord) -> list[ImageNeed]:
    """The needs of the pod's image volumes, mounted or not, in spec order."""
    needs = []
    for volume in record.spec.get("volumes") or ():
        source = volume.get("image")
        if source:
            image = str(source.get("reference") or "")
            policy = pull_policy({"image": image, "imagePullPolicy": source.get("pullPolicy")})
            needs.append(ImageNeed(image=image, policy=policy, volume=str(volume["name"])))
    return needs


def next_volume_image(record: PodRecord, step: Step, world: World) -> Call | None:
    """The next call for an image volume's image; None = each is there, or cannot be had now."""
    for need in image_volumes(record):
        if need.key in record.images:
            continue
        retry_at = record.retry.containers.get(need.key, 0.0)
        if retry_at > world.now:
            step.wake_earlier(retry_at)
            continue
        call = find_image(record, need, step, world)
        if call is not None:
            return call
    return None


def find_image(record: PodRecord, need: ImageNeed, step: Step, world: World) -> Call | None:
    """The call that brings an image that is not known yet nearer; None = why there is none is said in the step."""
    try:
        image = with_default_tag(need.image)
    except InvalidImageNameError as error:
        _say(record, need, step, "InvalidImageName", str(error), ("Warning", "InspectFailed", str(error)))
        return None
    until = pull_waits_until(record, image)
    if need.policy != "Always" and need.key not in record.pulls:
        return InspectImage(
            uid=record.uid,
            container=need.container,
            volume=need.volume,
            image=image,
            policy=need.policy,
            backed_off=until > world.now,
        )
    if need.policy == "Never":
        message = f'Container image "{image}" is not present with pull policy of Never'
        _say(record, need, step, "ErrImageNeverPull", message, ("Warning", "ErrImageNeverPull", message))
        _look_again(record, need, world.now + LOOK_AGAIN_SECONDS, step)
        return None
    if until > world.now:
        _wait_for_pull(record, need, image, until, step, world)
        return None
    step.events.append(("Normal", "Pulling", f'Pulling image "{image}"', need.container))
    return PullImage(
        uid=record.uid,
        container=need.container,
        volume=need.volume,
        image=image,
        sandbox_attempt=record.sandboxes[0].attempt,
        policy=need.policy,
    )


def _wait_for_pull(record: PodRecord, need: ImageNeed, image: str, until: float, step: Step, world: World) -> None:
    """Like the kubelet: why it failed first, that it waits afterwards."""
    back_off = record.saved.image_backoff[image]
    shown_until = until - back_off.seconds / 2
    if world.now < shown_until and _said(record, need) in PULL_ERRORS:
        until = shown_until
    else:
        event = ("Normal", "BackOff", f'Back-off pulling image "{image}"')
        _say(record, need, step, "ImagePullBackOff", f"{event[2]}: {back_off.message}", event)
    if need.policy == "Always":
        step.wake_earlier(until)
    else:
        _look_again(record, need, min(until, world.now + LOOK_AGAIN_SECONDS), step)


def _look_again(record: PodRecord, need: ImageNeed, when: float, step: Step) -> None:
    record.pulls.discard(need.key)
    # The same inspection after a wait is no repetition.
    record.retry = replace(container_later(record.retry, need.key, when), last_done=None)
    step.wake_earlier(when)


def _said(record: PodRecord, need: ImageNeed) -> str:
    said = record.volume_reasons.get(need.volume) if need.volume else record.reasons.get(need.container)
    return said[0] if said else ""


def _say(
    record: PodRecord, need: ImageNeed, step: Step, reason: str, message: str, event: tuple[str, str, str]
) -> None:
    if need.volume:
        if record.volume_reasons.get(need.volume) != (reason, message):
            record.volume_reasons[need.volume] = (reason, message)
            step.events.append((*event, ""))
        return
    step.reasons[need.container] = (reason, message)
    step.events += [(*event, need.container), error_event(need.container, reason)]


def error_event(container: str, text: str) -> tuple[str, str, str, str]:
    """`Failed` of a container that cannot be started."""
    return ("Warning", "Failed", f"Error: {text}", container)
