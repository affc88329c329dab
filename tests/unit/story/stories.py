"""Events and instructions of a pod, what its story shows of them, and `bulkhead explain`."""

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from bus.messages.event import KubeEvent
from services.cli.command import main
from services.podsync.core.pod.events import (
    CallDone,
    Event,
    PodObserved,
)
from services.podsync.core.pod.instructions import (
    Instruction,
    RecordEvent,
    StartContainer,
)
from services.podsync.core.story import StoryLines
from shared.model.runtime import Container, ContainerState, RuntimePod
from shared.story.sentences import sentence

POD = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": {"containers": [{"name": "c"}]}}


def instance(attempt: int, state: ContainerState, exit_code: int = 0, reason: str = "") -> Container:
    return Container(
        id=f"id{attempt}",
        name="c",
        attempt=attempt,
        sandbox_id="s",
        state=state,
        created_at=attempt,
        started_at=int((100 + attempt) * 1e9),
        finished_at=int((103 + attempt) * 1e9) if state is ContainerState.EXITED else 0,
        exit_code=exit_code,
        reason=reason,
        restart_count=attempt,
    )


def observed(*containers: Container) -> PodObserved:
    pod = RuntimePod(uid="u1", name="web", namespace="shop", observed_at=1, containers=containers)
    return PodObserved(observation=pod)


def started(attempt: int) -> CallDone:
    call = StartContainer(uid="u1", container="c", container_id=f"id{attempt}", attempt=attempt)
    return CallDone(uid="u1", call=call, completed_at=1.0)


def killing(message: str) -> RecordEvent:
    field = "spec.containers{c}"
    return RecordEvent(event=KubeEvent(type="Normal", reason="Killing", message=message, uid="u1", field_path=field))


def lines_of(*happened: Event | Instruction) -> list[dict[str, Any]]:
    story_lines, lines = StoryLines(boot=3), []
    for at, what in enumerate(happened, start=110):
        lines += [{"at": float(at), **line} for line in story_lines.describe("u1", what)]
    return lines


def sentences(*happened: Event | Instruction) -> list[str]:
    return [text for line in lines_of(*happened)[1:] if (text := sentence(line))]


def explain(root: Path, *words: str) -> Any:
    return CliRunner().invoke(main, ["explain", "--root-dir", str(root), *words])
