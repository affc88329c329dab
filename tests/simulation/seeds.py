"""One seed after the other, for the processes of `python -m tests.simulation`."""

import functools

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import Case, Verdict, check_case, draw
from tests.simulation.shrink import shrink


def work(seed: int, mutant: str | None = None, complete: bool = False) -> tuple[int, str, bool]:
    """The seed, what to print, whether it failed."""
    mutate = MUTANTS[mutant] if mutant else None
    verify = functools.partial(check_case, mutate=mutate)
    case = draw(seed)
    verdict = verify(case)
    if complete:
        return seed, "\n".join(("", *verdict.lines)), verdict.violation is not None
    if verdict.violation is None:
        return seed, "", False
    case, verdict = shrink(case, verdict, verify)
    return seed, report(case, verdict), True


def report(case: Case, verdict: Verdict) -> str:
    """What went wrong, with what was left of the case and the story of it."""
    lines = [str(verdict.violation), ""]
    lines += [f"  {pod}" for pod in case.workload.pods]
    lines += [f"  {fault}" for fault in case.faults]
    return "\n".join([*lines, "", *verdict.lines, f"violated: {verdict.violation}", ""])
