"""One sentence for each line of a story. Pure; an unknown line gives ""."""

from collections.abc import Callable
from typing import Any

from shared.story.lines import Kind, Line
from shared.story.restarts import how_it_ended
from shared.text.byte_size import byte_size
from shared.text.pull_text import pull_text

_CALLS = {
    "LookAtPod": "looked at what the runtime has of the pod",
    "FetchNode": "read the Node from the API server",
    "AskPreferredDevices": "asked a device plugin which devices it prefers",
    "AllocatePodDevices": "the device plugins have prepared the devices of the pod",
    "PreparePod": "made the pod's directories and cgroup",
    "RunPodSandbox": "sandbox of attempt {attempt} runs",
    "InspectImage": "looked for image {image}",
    "PullImage": "image {image} is pulled",
    "CreateContainer": "container {container} of attempt {attempt} is created",
    "StartContainer": "container {container} of attempt {attempt} is started",
    "RunPostStartHook": "the postStart hook of container {container} has ended",
    "KillContainer": "container {container} is stopped",
    "KillPod": "all containers and the sandbox are stopped",
    "RemoveContainers": "dead containers are removed",
    "RemoveSandboxes": "dead sandboxes are removed",
    "EndTasks": "whatever the runtime had left behind of {left} was ended by its task service",
    "ReleasePod": "the pod's cgroup is gone",
    "RemovePodLogs": "the pod's logs are removed",
}
_ATTEMPTS = {
    "LookAtPod": "looking at the pod in the runtime",
    "RunPodSandbox": "making the sandbox of attempt {attempt}",
    "FetchNode": "reading the Node from the API server",
    "AskPreferredDevices": "asking a device plugin which devices it prefers",
    "AllocatePodDevices": "having the device plugins prepare the devices of the pod",
    "InspectImage": "looking for image {image}",
    "PullImage": "pulling image {image}",
    "CreateContainer": "creating container {container} of attempt {attempt}",
    "StartContainer": "starting container {container} of attempt {attempt}",
    "RunPostStartHook": "the postStart hook of container {container}",
    "KillContainer": "stopping container {container}",
    "KillPod": "stopping the pod",
    "PreparePod": "making the pod's directories and cgroup",
    "RemoveContainers": "removing dead containers",
    "RemoveSandboxes": "removing dead sandboxes",
    "EndTasks": "ending whatever the runtime has left behind of {left}",
}
_STATES = {
    "sync": "admitted: the pod is to run",
    "terminating": "the pod is to end",
    "terminated": "nothing of the pod runs any more",
    "finished": "the pod is finished: containers, volumes and cgroup are gone",
}
_SEEN = {
    "new": "seen for the first time, from {source}",
    "changed": "its definition changed, from {source}",
    "to be deleted": "to be deleted, from {source}",
    "recorded": "in the record of {recorded}, which counts while the API server does not answer",
    "confirmed": "the API server has answered, and has it",
    "gone": "in no source any more",
}


def sentence(line: Line) -> str:
    """Return the sentence of a line, with its cause; "" where there is none."""
    make = _SENTENCES.get(str(line.get("what")))
    text = make(_Words(line)) if make is not None else ""
    cause = line.get("cause")
    if text and cause and line.get("what") in (Kind.STATE, Kind.BEGUN) and str(cause) not in text:
        return f"{text}, because: {cause}"
    return text


class _Words(dict[str, Any]):
    """The fields of a line for a text with places; what is not there reads `?`."""

    def __missing__(self, key: str) -> str:
        return "?"


def _seen(line: _Words) -> str:
    text = _SEEN.get(str(line["change"]), "").format_map(line)
    grace = line.get("grace")
    return f"{text}, with a grace period of {grace} s" if text and grace is not None else text


def _state(line: _Words) -> str:
    if line.get("rejected"):
        return f"refused: {line['rejected']}"
    text = _STATES.get(str(line["state"]), "")
    grace = line.get("grace")
    return f"{text} within {grace} s" if line["state"] == "terminating" and grace is not None else text


def _waits(line: _Words) -> str:
    return f"waits for {line['waits_for']}" if line.get("waits_for") else "waits no longer"


def _volume(line: _Words) -> str:
    text = {"mounted": "is mounted", "error": "cannot be mounted", "pending": "is being mounted"}.get(
        str(line["state"]), str(line["state"])
    )
    why = f": {line['error']}" if line.get("error") else ""
    return f"volume {line['volume']} {text}{why}"


def _begun(line: _Words) -> str:
    if line["call"] not in ("KillContainer", "KillPod", "RunPostStartHook"):
        return ""  # only calls that take long have a sentence while they are under way
    text = _ATTEMPTS[line["call"]].format_map(line)
    return f"{text}, grace period {line['grace']} s" if line.get("grace") is not None else text


def _done(line: _Words) -> str:
    text = _CALLS.get(str(line["call"]), "").format_map(line)
    took = line.get("took")
    text = f"{text}, after {took:.2f} s" if text and isinstance(took, float) and took >= 0.01 else text
    size = line.get("bytes")
    return f"{text} ({byte_size(size)})" if text and isinstance(size, int) else text


def _failed(line: _Words) -> str:
    known = _ATTEMPTS.get(str(line["call"]))
    text = known.format_map(line) if known else str(line["call"])
    return f"{text} was given up" if line.get("interrupted") else f"{text} failed: {line['text']}"


def _container(line: _Words) -> str:
    if line["state"] in ("EXITED", "UNKNOWN"):
        return f"container {line['container']}: {how_it_ended(line)}"
    return f"container {line['container']} of attempt {line['attempt']} is {str(line['state']).lower()}"


def _probe(line: _Words) -> str:
    result = {"success": "succeeds", "failure": "has failed", "": "has no result yet"}.get(str(line["result"]), "?")
    times = f" {line['times']} times in a row" if line.get("times") and line["result"] == "failure" else ""
    output = f": {line['output']}" if line.get("output") else ""
    return f"the {line['probe']} probe of container {line['container']} {result}{times}{output}"


def _pull(line: _Words) -> str:
    return f"pulling image {line['image']}: {pull_text(line)}"


def _event(line: _Words) -> str:
    return f"event {line['reason']}: {line['message']}"


def _status(line: _Words) -> str:
    return f"status: {line['phase']}{', ready' if line.get('ready') else ', not ready'}"


def _start(line: _Words) -> str:
    again = "the machine was started again; " if line.get("machine_started") else ""
    return f"{again}start {line['boot']} of podsync, which observes the pods that there are"


_SENTENCES: dict[str, Callable[[_Words], str]] = {
    Kind.START: _start,
    Kind.SEEN: _seen,
    Kind.STATE: _state,
    Kind.WAITS: _waits,
    Kind.VOLUME: _volume,
    Kind.BEGUN: _begun,
    Kind.DONE: _done,
    Kind.FAILED: _failed,
    Kind.SANDBOX: lambda line: f"sandbox of attempt {line['attempt']} is {str(line['state']).lower()}",
    Kind.CONTAINER: _container,
    Kind.PROBE: _probe,
    Kind.PULL: _pull,
    Kind.EVENT: _event,
    Kind.STATUS: _status,
}
