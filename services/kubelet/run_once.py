"""Prints the result of `kubelet --runonce` once the agent has ended: a table or JSON, and what was interrupted."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import to_builtins

from shared.agent.run_once import load_record
from shared.model.run_once import FINAL, Outcome, RunOnceRecord

_HEAD = ("NAMESPACE", "POD", "RESULT", "MESSAGE")


def print_result(run_dir: str, form: str) -> int:
    """Print the result on standard output, and remarks on standard error. Return the exit code."""
    try:
        code = report(Path(run_dir), form, print, lambda line: print(line, file=sys.stderr))
        sys.stdout.flush()
    except OSError:
        return 1  # The output is closed or the disk is full; the record stays in the run directory.
    return code


def report(run_dir: Path, form: str, out: Callable[[str], None], err: Callable[[str], None]) -> int:
    """Print the result as `text` or `json`. Return the exit code: 0 if every pod succeeded or is Ready, else 1."""
    record = load_record(run_dir)
    if record is None:
        err("run once: interrupted before the pods were known")
        return 1
    if form == "json":
        out(json.dumps(_as_json(record), indent=2))
    else:
        for line in _as_table(record):
            out(line)
    for problem in record.problems:
        err(f"run once: {_plain(problem)}")
    if not record.complete:
        open_pods = [f"{pod.namespace}/{pod.name}" for pod in record.pods if pod.outcome not in FINAL]
        err(f"run once: interrupted; not done, and left as they are: {', '.join(open_pods) or 'none'}")
    ready = [f"{pod.namespace}/{pod.name}" for pod in record.pods if pod.outcome is Outcome.READY]
    if ready:
        err(f"run once: these pods keep running: {', '.join(ready)}")
    return int(record.failed)


def _as_table(record: RunOnceRecord) -> list[str]:
    rows = [_HEAD, *((pod.namespace, pod.name, pod.outcome.value, _plain(pod.message)) for pod in record.pods)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])).rstrip()
        for row in rows
    ]


def _as_json(record: RunOnceRecord) -> dict[str, object]:
    pods = [to_builtins(pod) for pod in record.pods]
    return {"complete": record.complete, "failed": record.failed, "pods": pods, "problems": list(record.problems)}


def _plain(text: str) -> str:
    """Return the text with control characters escaped: a container may have written part of it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
