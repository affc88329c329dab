"""Makes a failing case small: faults, pods and their parts are left out for as long as the same thing goes wrong."""

import re
from collections.abc import Callable, Iterator

from shared.model.frozen_copy import replace
from tests.simulation.faults import BusFault, Fault, Kill, RuntimeFault
from tests.simulation.run import Case, Verdict
from tests.simulation.workload import PodPlan, Workload

TRIALS = 150


def kind_of(violation: str) -> str:
    """What a violation is about, without the names and numbers of one run."""
    first = violation.split("\n")[0].split(": ")[0] if violation.startswith("unexpected") else violation.split(":")[0]
    return re.sub(r"\b(?=\w*\d)\w+\b|\d+", "#", first)


def shrink(case: Case, verdict: Verdict, check_case: Callable[[Case], Verdict]) -> tuple[Case, Verdict]:
    """The smallest case found within a number of trials, and its verdict. `verdict` is the given case's violation."""
    assert verdict.violation is not None
    kind, trials = kind_of(verdict.violation), 0
    smaller = True
    while smaller and trials < TRIALS:
        smaller = False
        for candidate in _smaller(case):
            trials += 1
            found = check_case(candidate)
            if found.violation is not None and kind_of(found.violation) == kind:
                case, verdict, smaller = candidate, found, True
                break
            if trials >= TRIALS:
                break
    return case, verdict


def _smaller(case: Case) -> Iterator[Case]:
    faults = case.faults
    if len(faults) > 2:
        half = len(faults) // 2
        yield replace(case, faults=faults[:half])
        yield replace(case, faults=faults[half:])
    for index in range(len(faults)):
        yield replace(case, faults=faults[:index] + faults[index + 1 :])
    pods = case.workload.pods
    for pod in pods if len(pods) > 1 else ():
        yield replace(case, workload=case.workload.without(pod.name))
    for workload in _simpler_workloads(case.workload):
        yield replace(case, workload=workload)
    for index, fault in enumerate(faults):
        for simpler in _simpler_faults(fault):
            yield replace(case, faults=(*faults[:index], simpler, *faults[index + 1 :]))


def _simpler_workloads(workload: Workload) -> Iterator[Workload]:
    if workload.secret_at:
        yield replace(workload, secret_at=0.0)
    if workload.plugin is not None and not any(pod.devices or pod.cpus for pod in workload.pods):
        yield replace(workload, plugin=None)
    if workload.late_images:
        yield replace(workload, late_images=())
    for index, pod in enumerate(workload.pods):
        for simpler in _simpler_pods(pod):
            yield replace(workload, pods=(*workload.pods[:index], simpler, *workload.pods[index + 1 :]))


def _simpler_pods(pod: PodPlan) -> Iterator[PodPlan]:
    for index in range(len(pod.acts)):
        yield replace(pod, acts=pod.acts[:index] + pod.acts[index + 1 :])
    if pod.devices:
        yield replace(pod, devices=0)
    if pod.cpus:
        yield replace(pod, cpus=0)
    if pod.probes:
        yield replace(pod, probes=())
    for volume in pod.volumes:
        yield replace(pod, volumes=tuple(other for other in pod.volumes if other != volume))
    if pod.init:
        yield replace(pod, init=pod.init[1:])
    if pod.sidecar:
        yield replace(pod, sidecar=())
    if len(pod.runs) > 1:
        yield replace(pod, runs=pod.runs[:1])
        yield replace(pod, runs=pod.runs[1:])
    for index, runs in enumerate(pod.runs):
        if len(runs) > 1:
            yield replace(pod, runs=(*pod.runs[:index], runs[1:], *pod.runs[index + 1 :]))


def _simpler_faults(fault: Fault) -> Iterator[Fault]:
    if isinstance(fault, BusFault) and fault.every > 1:
        yield replace(fault, every=1)
    if isinstance(fault, Kill) and fault.lines:
        yield replace(fault, lines=0)
    if isinstance(fault, RuntimeFault) and fault.times > 1:
        yield replace(fault, times=1)
