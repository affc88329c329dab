"""What containerd answers where a container has a task that CRI does not know of."""

from shared.cri.interface import RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState


def refusal_of_start(container_id: str) -> RuntimeCallError:
    """Of StartContainer; the container is then shown as ended."""
    text = f"failed to create containerd task: task {container_id}: already exists"
    return RuntimeCallError("StartContainer", "AlreadyExists", text)


def refusal_of_removal(container_id: str) -> RuntimeCallError:
    """Of RemoveContainer."""
    running = f"cannot delete running task {container_id}: failed precondition"
    text = f'failed to delete containerd container "{container_id}": {running}'
    return RuntimeCallError("RemoveContainer", "FailedPrecondition", text)


def never_ran(container: Container, at: int) -> Container:
    """The container after a start that failed; `at`: nanoseconds since the epoch."""
    return replace(container, state=ContainerState.EXITED, exit_code=128, reason="StartError", finished_at=at)
