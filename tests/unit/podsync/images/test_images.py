"""Images of containers and volumes: calls, errors and repeated events (pods.md 5.5, 7.1, 7.3)."""

from time import process_time
from typing import Any

import pytest

from services.podsync.core.images.image_reference import InvalidImageNameError, with_default_tag
from services.podsync.core.images.pull_backoff import count_pull_failure
from services.podsync.core.pod.call_results import ImageInspected
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import Call, CreateContainer, InspectImage, LookAtPod, PullImage
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from tests.unit.podsync.play import Play, Pod, a_container, a_pod

MOUNT = [{"name": "data", "mountPath": "/data"}]
SECRETS = (
    "FailedToRetrieveImagePullSecret",
    "Unable to retrieve some image pull secrets (a); attempting to pull the image may not succeed.",
)


class Answers(Play):
    """A play whose images answer in their own way; `answer` is given the call and what it would have come to."""

    answer: Any = None

    def effect(self, call: Call) -> CallDone:
        done = super().effect(call)
        changed: CallDone = self.answer(call, done) if self.answer else done
        return changed


def with_image_volume(policy: str = "IfNotPresent", *, mounts: list[Any] | None = None) -> Pod:
    volume = {"name": "data", "image": {"reference": "data:1", "pullPolicy": policy}}
    return a_pod(containers=[a_container("c", volumeMounts=mounts or []), a_container("d")], volumes=[volume])


def image_calls(play: Play) -> list[tuple[str, str, str, str]]:
    calls = [call for call in play.calls if isinstance(call, InspectImage | PullImage)]
    return [(type(call).__name__, call.container, call.volume, call.policy) for call in calls]


def record_of(play: Play) -> TrackedPod:
    return play.core.tracked["u1"]


def test_a_volumes_image_is_there_before_the_first_container_is_made() -> None:
    play = Play().wanting(with_image_volume(mounts=MOUNT))
    assert image_calls(play)[:3] == [
        ("InspectImage", "", "data", "IfNotPresent"),
        ("PullImage", "", "data", "IfNotPresent"),
        ("InspectImage", "c", "", "IfNotPresent"),
    ]
    created = [call for call in play.calls if isinstance(call, CreateContainer)]
    assert [call.image_volumes for call in created] == [(("data", "sha256:data:1"),), ()]
    assert play.published["u1"].volumes.volumes == (), "the runtime mounts it, not volume"


def test_policy_always_pulls_it_without_looking() -> None:
    play = Play(images={"busybox:1", "data:1"}).wanting(with_image_volume("Always", mounts=MOUNT))
    assert image_calls(play)[0] == ("PullImage", "", "data", "Always")


def test_one_that_cannot_be_pulled_stops_only_the_container_that_mounts_it() -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")}).wanting(with_image_volume(mounts=MOUNT))
    assert play.running("u1") == [("d", 0)]
    assert play.reason("c") == ("ErrImagePull", "rpc error: code = NotFound desc = no such image")
    assert "Warning Failed: Error: ErrImagePull" in play.events
    play.later(6)
    assert play.reason("c")[0] == "ImagePullBackOff"
    play.fail_always.clear()
    play.later(6)
    assert sorted(play.running("u1")) == [("c", 0), ("d", 0)]


def test_one_that_is_mounted_nowhere_stops_no_container() -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")}).wanting(with_image_volume())
    assert sorted(play.running("u1")) == [("c", 0), ("d", 0)]


def test_one_that_is_absent_and_may_never_be_pulled_is_in_the_container_status() -> None:
    play = Play().wanting(with_image_volume("Never", mounts=MOUNT))
    text = 'Container image "data:1" is not present with pull policy of Never'
    assert play.reason("c") == ("ErrImageNeverPull", text)
    assert play.events.count(f"Warning ErrImageNeverPull: {text}") == 1
    play.images.add("data:1")
    play.later(11)
    assert sorted(play.running("u1")) == [("c", 0), ("d", 0)]


def test_its_image_is_found_again_after_a_restart_of_podsync() -> None:
    play = Play().wanting(with_image_volume(mounts=MOUNT))
    play.restart()
    play.exit("u1", 1)
    created = [call for call in play.calls if isinstance(call, CreateContainer) and call.container == "c"]
    assert [call.image_volumes for call in created] == 2 * [(("data", "sha256:data:1"),)]


def must_pull(call: Call, done: CallDone) -> CallDone:
    if not isinstance(done.result, ImageInspected):
        return done
    return replace(done, result=replace(done.result, must_pull=True))


def test_an_image_this_pod_has_not_shown_its_right_to_is_pulled() -> None:
    play = Answers()
    play.answer = must_pull
    play.want(a_pod())
    assert play.log[3:] == ["InspectImage", "PullImage", "CreateContainer", "StartContainer"]


def test_under_policy_never_it_counts_as_absent() -> None:
    play = Answers()
    play.answer = must_pull
    play.want(a_pod(containers=[a_container("c", imagePullPolicy="Never")]))
    assert play.reason("c") == (
        "ErrImageNeverPull",
        'Container image "busybox:1" is not present with pull policy of Never',
    )
    assert "PullImage" not in play.log


REGISTRY = [
    (
        "RegistryUnavailable: try later",
        "RegistryUnavailable",
        "image pull failed for nope:1 because the registry is unavailable: try later",
    ),
    (
        "SignatureValidationFailed: by whom",
        "SignatureValidationFailed",
        "image pull failed for nope:1 because the signature validation failed: by whom",
    ),
    ("pull QPS exceeded", "ErrImagePull", "pull QPS exceeded"),
]


@pytest.mark.parametrize(("text", "reason", "message"), REGISTRY)
def test_the_error_of_the_registry_is_named(text: str, reason: str, message: str) -> None:
    play = Play(fail_always={"PullImage": ("Unknown", text)})
    play.want(a_pod(containers=[a_container("c", image="nope:1")]))
    assert play.reason("c") == (reason, message)
    assert f"Warning Failed: Error: {reason}" in play.events
    assert f'Warning Failed: Failed to pull image "nope:1": {text}' in play.events
    play.later(6)
    back_off = f'Back-off pulling image "nope:1": {reason}: {message}'
    assert play.reason("c") == ("ImagePullBackOff", back_off)


def test_an_error_that_has_no_name_is_shown_as_it_is_and_the_pull_tried_again() -> None:
    play = Play(images=set())
    text = "could not parse a pull secret"
    play.hang.add("PullImage")
    play.want(a_pod())
    call = play.calls[-1]
    play.happen(
        CallFailed(
            uid="u1", call=call, completed_at=play.wall, code="", text="detail", description="detail", reason=text
        )
    )
    assert play.reason("c") == (text, "detail")
    assert f"Warning Failed: Error: {text}" in play.events
    play.later(2)
    assert play.running("u1") == [("c", 0)]


def test_an_unchanged_warning_is_reported_once() -> None:
    play = Answers(images=set())
    play.answer = lambda call, done: replace(done, warnings=(SECRETS,)) if "Image" in type(call).__name__ else done
    play.want(a_pod(containers=[a_container("c"), a_container("d", image="other:1")]))
    assert play.events.count(f"Warning {SECRETS[0]}: {SECRETS[1]}") == 1


def test_a_warning_of_one_container_is_reported_each_time() -> None:
    play = Answers()
    hook = ("FailedPreStopHook", "PreStopHook failed", "c")
    play.answer = lambda call, done: (
        replace(done, container_warnings=(hook,)) if "Kill" in type(call).__name__ else done
    )
    play.want(a_pod())
    play.drop("u1")
    assert "Warning FailedPreStopHook: PreStopHook failed" in play.events


def test_a_warning_that_comes_back_is_reported_again() -> None:
    play = Answers()
    play.want(a_pod(containers=[a_container("c", imagePullPolicy="Always")]))
    for warns in (True, True, False, True):
        play.answer = lambda call, done, warns=warns: (
            replace(done, warnings=(SECRETS,) if warns else ()) if isinstance(call, PullImage) else done
        )
        play.exit("u1", 1)
        play.later(400)
    assert play.events.count(f"Warning {SECRETS[0]}: {SECRETS[1]}") == 2


@pytest.mark.parametrize(("runs", "seconds"), [(30, 20), (700, 10)])
def test_failures_are_counted_on_across_a_pull_that_succeeds_until_they_are_old(runs: int, seconds: int) -> None:
    play = Play(fail={"PullImage": ("Unavailable", "away")})
    play.want(a_pod(containers=[a_container("c", imagePullPolicy="Always")]))
    play.later(15)
    assert play.running("u1") == [("c", 0)]
    play.later(runs)
    play.fail["PullImage"] = ("Unavailable", "away")
    play.exit("u1", 1)
    play.later(seconds - 1)
    assert play.running("u1") == []
    play.later(2)
    assert play.running("u1") == [("c", 1)]


def test_failures_of_images_that_a_pod_named_long_ago_are_dropped() -> None:
    tracked = TrackedPod(uid="u", name="web", namespace="shop")
    for number in range(50):
        tracked = count_pull_failure(tracked, f"edited:{number}", "no", now=number * 100.0)
    assert list(tracked.saved.image_backoff) == [f"edited:{number}" for number in range(43, 50)]


@pytest.mark.parametrize("part", ["a", "-a", "a-", "a.", "a/", "A", ":1", "@", "[::1]:5/"])
def test_a_very_long_image_name_is_refused_in_a_short_text(part: str) -> None:
    before = process_time()
    with pytest.raises(InvalidImageNameError) as caught:
        with_default_tag(part * 200_000)
    assert process_time() - before < 0.5
    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize("pod", [a_pod(containers=[a_container("c", image="data:1")]), with_image_volume(mounts=MOUNT)])
def test_an_image_that_is_imported_while_its_pull_backs_off_is_found_within_ten_seconds(pod: Pod) -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")}).wanting(pod)
    for _ in range(5):  # until a back-off of 160 s has begun
        play.later(160)
    assert play.reason("c")[0] == "ImagePullBackOff"
    pulls = play.log.count("PullImage")
    play.images.add("data:1")
    play.later(10)
    assert ("c", 0) in play.running("u1")
    assert play.log.count("PullImage") == pulls


NEVER = 'Container image "absent:1" is not present with pull policy of Never'


@pytest.mark.parametrize(
    ("container", "first", "second"),
    [
        (
            a_container("c", image="absent:1", imagePullPolicy="Never"),
            f"ErrImageNeverPull: {NEVER}",
            "ErrImageNeverPull",
        ),
        (a_container("c", image="Bad Name"), "InspectFailed: Failed to apply default image tag", "InvalidImageName"),
    ],
)
def test_the_events_of_an_image_that_never_comes_are_repeated_each_minute_or_two(
    container: Pod, first: str, second: str
) -> None:
    """So that they are there after their hour at the API server; and not with each event of the pod."""
    play = Play().wanting(a_pod(containers=[container, a_container("d")]))
    for _ in range(5):
        play.events.clear()
        for _ in range(120):
            play.later(1)
            play.observe("u1")
        for event in (f"Warning {first}", f"Warning Failed: Error: {second}"):
            assert 1 <= sum(recorded.startswith(event) for recorded in play.events) <= 2


@pytest.mark.long
def test_while_a_pull_backs_off_the_image_is_looked_for_every_ten_seconds_and_little_else_happens() -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")})
    play.want(a_pod(containers=[a_container("c", image="data:1"), a_container("d", image="data:1")]))
    for _ in range(40):
        play.later(40)
    while play.reason("c")[0] != "ImagePullBackOff":
        play.later(5)
    before, events = len(play.calls), len(play.events)
    play.later(50)
    looks = [call for call in play.calls[before:] if not isinstance(call, LookAtPod)]
    assert {type(call) for call in looks} == {InspectImage}
    assert all(isinstance(call, InspectImage) and call.backed_off for call in looks)
    assert 8 <= len(looks) <= 12
    assert len(play.events) <= events + 4, "BackOff and Failed of both containers, once a minute"


def test_what_is_always_pulled_is_not_looked_for() -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")})
    play.want(a_pod(containers=[a_container("c", imagePullPolicy="Always")]))
    for _ in range(10):
        play.later(60)
    assert "InspectImage" not in play.log


def untagged(policy: str) -> Pod:
    return a_pod(containers=[a_container("c") | {"image": "nginx", "imagePullPolicy": policy}])


def test_what_users_see_of_an_image_has_the_name_of_the_spec() -> None:
    play = Play(images=set())
    play.fail_always["PullImage"] = ("NotFound", "no such image")
    play.want(untagged("Always"))
    play.later(25)
    failed = 'Failed to pull image "nginx": rpc error: code = NotFound desc = no such image'
    seen = {event.partition(": ")[2] for event in play.events if "nginx" in event}
    assert seen == {'Pulling image "nginx"', failed, 'Back-off pulling image "nginx"'}
    back_off = 'Back-off pulling image "nginx": ErrImagePull: rpc error: code = NotFound desc = no such image'
    assert play.reason("c") == ("ImagePullBackOff", back_off)


@pytest.mark.parametrize(
    ("policy", "event"),
    [
        ("Never", 'Container image "nginx" is not present with pull policy of Never'),
        ("Always", 'Successfully pulled image "nginx" in 0s (0s including waiting). Image size: 1 bytes.'),
    ],
)
def test_neither_a_pull_nor_its_refusal_names_another_tag(policy: str, event: str) -> None:
    play = Play(images=set()).wanting(untagged(policy))
    assert event in [each.partition(": ")[2] for each in play.events]
