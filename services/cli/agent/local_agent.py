"""Finds the agent of this machine by its run directory, and reads its streams once. Starts and changes nothing."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from bus.client import Client, Question
from bus.manifest import read_manifest
from bus.messages.followed import Followed, GetFollowed
from bus.messages.manifest import Manifest
from bus.messages.services import SERVICES
from bus.messages.snapshot import GetSnapshot, Snapshot
from services.report.node import Report, ReportInputs, process_problem, report
from services.report.pod_rows import PodFacts, PodRow, is_shown, pod_row
from services.report.processes import process_of
from shared.agent.places import PLACE_VARIABLES, find_places
from shared.config.excerpt import ConfigExcerpt, load_excerpt
from shared.errors import OperatorError

TIMEOUT_SECONDS = 1.0  # that a running process has to answer; a stopped one is not waited for
_NAMES_TIMEOUT_SECONDS = 0.3  # to complete a name in a shell, which shows what is known by then
_PODS = {
    "desired": "pods.desired",
    "status": "pods.status",
    "admitted": "pods.admitted",
    "runtime": "runtime.pods",
    "volumes": "volumes.mounted",
    "pull": "pods.pulls",
}
_OWNERS = {  # the owners of the streams that commands read
    "pods.desired": "sources",
    "node.object": "sources",
    "objects.changed": "sources",
    "pods.status": "podsync",
    "pods.admitted": "podsync",
    "pods.pulls": "podsync",
    "node.resources": "podsync",
    "node.shutdown": "podsync",
    "runtime.pods": "pleg",
    "node.observed": "pleg",
    "node.images": "pleg",
    "certificates": "bootstrap",
    "volumes.mounted": "volume",
    "devices.resources": "volume",
    "plugins.registered": "volume",
    "claims.prepared": "volume",
    **{f"events/{service}": service for service in SERVICES},
}
Items = dict[str, dict[str, Any]]


class Agent:
    """The services of one run directory, which are asked from outside."""

    def __init__(self, manifest: Manifest, config: ConfigExcerpt, client: Client) -> None:
        self.manifest, self.config, self.client = manifest, config, client
        self.silent: tuple[str, ...] = ()  # services that did not answer the last call of `streams`

    @property
    def run_dir(self) -> str:
        """The run directory."""
        return self.manifest.run_dir

    def report(self) -> Report:
        """Return the state of the agent. Takes as long as the slowest running process, at most `TIMEOUT_SECONDS`."""
        processes = {service: process_of(self.run_dir, service) for service in SERVICES}
        able = {service for service, facts in processes.items() if facts.holder and not facts.stopped}
        followed = {service: Question(service, GetFollowed(), Followed) for service in able}
        names = ("node.observed", "node.object", "node.shutdown", *_PODS.values())
        snapshots = {name: _snapshot(name) for name in names if _OWNERS[name] in able}
        self._forget_beats_of(set(SERVICES) - able)
        answers = self.client.ask([*followed.values(), *snapshots.values()], TIMEOUT_SECONDS, beats_of=able)
        items = {name: _items(answers.get(question)) for name, question in snapshots.items()}
        return report(
            ReportInputs(
                now=time.monotonic(),
                node=self.config.node_name,
                joins_cluster=self.config.joins_cluster,
                run_dir=self.run_dir,
                processes=processes,
                beats=self.client.beats,
                followed={
                    service: answers[question]
                    for service, question in followed.items()
                    if isinstance(answers.get(question), Followed)
                },
                observed=_node_item(items.get("node.observed")),
                node_object=_node_item(items.get("node.object")),
                shutdown=_node_item(items.get("node.shutdown")),
                pods=pod_rows({kind: items.get(name) for kind, name in _PODS.items()}),
            )
        )

    def streams(self, *names: str, timeout: float = TIMEOUT_SECONDS) -> dict[str, Items | None]:
        """Return the items of these streams, by key; None = the owner did not answer."""
        questions = {name: _snapshot(name) for name in names}
        able = {s for s in SERVICES if (facts := process_of(self.run_dir, s)).holder and not facts.stopped}
        answers = self.client.ask([q for q in questions.values() if q.service in able], timeout)
        asked = {question.service for question in questions.values()}
        answered = {question.service for question in answers}  # a refusal counts, too: the service has no such stream
        self.silent = tuple(service for service in SERVICES if service in asked - answered)
        return {name: _items(answers.get(question)) for name, question in questions.items()}

    def pods(self) -> tuple[list[PodRow], list[PodFacts]]:
        """Return the pods of this node, sorted by namespace and name, and what the streams have of each."""
        found = self.streams(*_PODS.values())
        if found["pods.desired"] is None and found["runtime.pods"] is None:
            raise OperatorError(
                "neither sources nor pleg answers", where=self.run_dir, remedy="bulkhead status shows the processes"
            )
        facts = pod_facts({kind: found[name] for kind, name in _PODS.items()})
        rows = sorted(((pod_row(one), one) for one in facts), key=_by_name)
        return [row for row, _ in rows], [one for _, one in rows]

    def require(self, service: str) -> None:
        """Raise OperatorError where the process of this service is absent, or stopped by a signal."""
        if process_of(self.run_dir, service).holder is None:
            what, remedy = process_problem(service, "absent", None)
            raise OperatorError(what, remedy=remedy)
        refuse_stopped(self.run_dir, service)

    def silence_of(self, service: str) -> OperatorError:
        """Return the error about a process that runs and has not answered a question in time."""
        holder = process_of(self.run_dir, service).holder
        what, remedy = process_problem(service, "silent" if holder else "absent", holder.pid if holder else None)
        return OperatorError(what, remedy=remedy)

    def _forget_beats_of(self, services: set[str]) -> None:
        """Forget the beats of these services: the troubles of a process that cannot answer now do not count."""
        for service in services:
            self.client.beats.pop(service, None)


@contextlib.contextmanager
def local_agent(run_dir: str = "") -> Iterator[Agent]:
    """Yield the agent of this run directory, "" = the configured one. Raises OperatorError where none was started."""
    places = run_dir or find_places().run_dir
    directory = Path(places).absolute()
    try:
        manifest = read_manifest(directory)
        config = load_excerpt(str(directory))
    except (OperatorError, OSError) as error:
        if isinstance(error.__cause__, PermissionError):
            remedy = "run this as root, or as the user of the agent"
            raise OperatorError("cannot be read by this user", where=str(directory), remedy=remedy) from error
        if (directory / "manifest.json").exists():
            raise OperatorError(str(error)) from error
        named = next((name for name in reversed(PLACE_VARIABLES) if not run_dir and os.environ.get(name)), "")
        raise OperatorError(
            "no agent was started with this run directory",
            where=str(directory),
            remedy="start it, name its directory with --run-dir, or "
            + (f"unset {named}, which names this one" if named else "run this as root"),
        ) from error
    with Client(manifest) as client:
        yield Agent(manifest, config, client)


def refuse_stopped(run_dir: str, service: str) -> None:
    """Raise OperatorError where the process of this service is stopped by a signal: it would answer nothing."""
    facts = process_of(run_dir, service)
    if facts.holder is not None and facts.stopped:
        what, remedy = process_problem(service, "stopped", facts.holder.pid)
        raise OperatorError(what, remedy=remedy)


def pod_facts(streams: dict[str, Items | None]) -> list[PodFacts]:
    """Return what the streams have of each pod. `streams`: desired, status, admitted, runtime, volumes; None = no
    answer.
    """
    uids = {uid for kind in ("desired", "admitted", "runtime") for uid in streams.get(kind) or {}}
    return [
        PodFacts(
            uid=uid,
            status_known=streams.get("status") is not None,
            **{kind: (streams.get(kind) or {}).get(uid) or {} for kind in _PODS},
        )
        for uid in uids
        if is_shown((streams.get("admitted") or {}).get(uid, {}).get("state"), uid in (streams.get("desired") or {}))
    ]


def pod_rows(streams: dict[str, Items | None]) -> list[PodRow]:
    """Return a row for each pod, sorted by namespace and name."""
    return [row for row, _ in sorted(((pod_row(one), one) for one in pod_facts(streams)), key=_by_name)]


def _by_name(item: tuple[PodRow, PodFacts]) -> tuple[str, str, str]:
    return item[0].namespace, item[0].name, item[0].uid


def _snapshot(stream: str) -> Question:
    return Question(_OWNERS[stream], GetSnapshot(stream=stream), Snapshot)


def _items(answer: Any) -> Items | None:
    if not isinstance(answer, Snapshot):
        return None
    return {key: orjson.loads(bytes(value)) for key, value in answer.entries.items()}


def _node_item(items: Items | None) -> dict[str, Any] | None:
    return None if items is None else items.get("node")


def pod_names(run_dir: str, namespace: str, typed: str) -> list[str]:
    """Return the names of this node's pods that begin with `typed`, as name or namespace/name; none where no agent
    answers.
    """
    try:
        with local_agent(run_dir) as agent:
            named = ("desired", "admitted", "runtime")  # without the statuses, which are the largest
            found = agent.streams(*(_PODS[kind] for kind in named), timeout=_NAMES_TIMEOUT_SECONDS)
    except OperatorError:
        return []
    here = (row for row in pod_rows({kind: found[_PODS[kind]] for kind in named}) if namespace in ("", row.namespace))
    names = (f"{row.namespace}/{row.name}" if "/" in typed else row.name for row in here)
    return sorted({name for name in names if name.startswith(typed)})
