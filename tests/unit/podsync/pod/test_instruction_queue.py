"""The queue of a pod's instructions: order, and saves and statuses that newer ones replace."""

from bus.messages.podsync import PodStatus
from services.podsync.core.pod.instruction_queue import InstructionQueue, Queued
from services.podsync.core.pod.instructions import (
    ForgetPod,
    Instruction,
    PublishStatus,
    PullImage,
    RemoveContainers,
    SavePod,
)

PULL = PullImage(uid="u", container="c", image="busybox:1", sandbox_attempt=0)
REMOVE = RemoveContainers(uid="u", containers=())


def save(number: int, *, urgent: bool) -> SavePod:
    return SavePod(uid="u", record={"number": number}, urgent=urgent)


def status(number: int, *, on_the_way: bool) -> PublishStatus:
    value = PodStatus(uid="u", name="p", namespace="n", status={"number": number}, version=(0, number))
    return PublishStatus(status=value, on_the_way=on_the_way)


def queue_of(*instructions: Instruction) -> InstructionQueue:
    queue = InstructionQueue()
    for instruction in instructions:
        queue.add(instruction)
    return queue


def waiting(queue: InstructionQueue) -> list[Queued]:
    return list(queue.waiting)


def test_only_the_newest_record_that_is_not_urgent_is_saved_and_only_once_it_is_released() -> None:
    queue = queue_of(save(1, urgent=False), PULL, save(2, urgent=False))
    assert waiting(queue) == [PULL]
    queue.release_save()
    queue.release_save()
    assert waiting(queue) == [PULL, save(2, urgent=False)]


def test_an_urgent_save_replaces_a_withheld_one() -> None:
    queue = queue_of(save(1, urgent=False), save(2, urgent=True))
    queue.release_save()
    assert waiting(queue) == [save(2, urgent=True)]


def test_a_withheld_record_is_saved_before_containers_are_removed() -> None:
    assert waiting(queue_of(save(1, urgent=False), REMOVE)) == [save(1, urgent=False), REMOVE]


def test_a_newer_status_replaces_a_withheld_one() -> None:
    queue = queue_of(status(1, on_the_way=True), status(2, on_the_way=False))
    queue.release_status()
    assert waiting(queue) == [status(2, on_the_way=False)]
    queue = queue_of(status(1, on_the_way=True), status(2, on_the_way=True))
    queue.release_status()
    assert waiting(queue) == [status(2, on_the_way=True)]


def test_nothing_is_withheld_for_a_forgotten_pod() -> None:
    queue = queue_of(save(1, urgent=False), status(1, on_the_way=True), ForgetPod(uid="u"))
    queue.release_save()
    queue.release_status()
    assert waiting(queue) == [ForgetPod(uid="u")]


def test_the_next_call_is_found_behind_what_comes_before_it() -> None:
    assert queue_of(save(1, urgent=True), PULL, REMOVE).next_call() == "PullImage"
    queue = queue_of(save(1, urgent=True))
    queue.waiting.append(lambda: None)
    assert queue.next_call() == "none"
