"""What a run needs of the interpreter around it: rng, crash points, still facts of the machine, the log."""

import contextlib
import logging
import random
import secrets
import shutil
from collections.abc import Iterator
from random import Random
from unittest import mock

from tests.simulation import patches
from tests.simulation.loop import INCARNATION, Killed
from tests.simulation.node import Node


class _Errors(logging.Handler):
    """What a service did not expect is a violation."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.ERROR)
        self._node = node

    def emit(self, record: logging.LogRecord) -> None:
        incarnation = INCARNATION.get()
        if incarnation is not None and incarnation.dead:
            return
        if record.exc_info and record.exc_info[1] is not None and not isinstance(record.exc_info[1], Killed):
            error = record.exc_info[1]
            self._node.oracle.violated(f"unexpected: {record.getMessage()}: {type(error).__name__}: {error}")
        else:
            self._node.story.add(incarnation.service if incarnation else "?", f"logs: {record.getMessage()[:160]}")


@contextlib.contextmanager
def surroundings(node: Node, seed: int) -> Iterator[None]:
    """What a run needs of the interpreter: rng, crash points, facts of the machine, the log. All taken back."""
    rng = Random(f"{seed} secrets")
    random.seed(seed)
    handler = _Errors(node)
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    root.setLevel(logging.ERROR)
    root.handlers[:] = [handler]
    try:
        with (
            mock.patch.object(secrets, "token_hex", lambda n=16: rng.randbytes(n).hex()),
            mock.patch.object(secrets, "randbelow", rng.randrange),
            mock.patch("shared.process.crash._CRASH_AT", "@simulation"),
            mock.patch("shared.process.crash._claim", lambda _at, name: node.crash_point(name)),
            mock.patch("services.podsync.controllers.pod_workers.is_armed", node.is_armed_at),
            mock.patch("services.podsync.service.boot_id", lambda: node.boot),
            mock.patch("services.podsync.service.start_of_programs", lambda _: node.boot),
            mock.patch("services.podsync.service.supervisor_generation", lambda: node.boot),
            patches.machine(),
            patches.without_placement() if node.plugin is None else patches.with_placement(node.plugin),
            patches.without_claims() if node.driver is None else patches.with_claims(node.driver, lambda: node.boot),
        ):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)


def clear(*directories: str) -> None:
    """Remove what a run left in the working directory."""
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
