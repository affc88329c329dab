"""What tests read of a machine with the Debian package."""

import json
import subprocess

from tests.support.machines.installed_node import InstalledNode

SILENT = "podsync does not answer: pods are shown as the runtime has them (bulkhead status shows the processes)\n"


class Node(InstalledNode):
    """A machine whose answers are given."""

    def __init__(self, *answers: tuple[list[dict[str, object]], str]) -> None:
        self.answers = list(answers)

    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        assert command[:2] == ("bulkhead", "pods")
        rows, error = self.answers.pop(0)
        return subprocess.CompletedProcess(command, 0, json.dumps(rows), error)

    def import_images(self) -> None:
        raise AssertionError("not asked for")


def test_rows_count_only_where_podsync_has_answered() -> None:
    known: list[dict[str, object]] = [{"name": "pod", "restarts": 1}]
    node = Node(([{"name": "pod", "restarts": 0}], SILENT), (known, ""))
    assert node.pods() == known and not node.answers
