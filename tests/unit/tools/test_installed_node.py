"""What tests read of a machine with the Debian package."""

import subprocess

from tests.support.machines.installed_node import InstalledNode

NOTES = (
    "podsync does not answer: pods are shown as the runtime has them (bulkhead status shows the processes)\n",
    "volume does not answer: facts about pods are missing (bulkhead status shows the processes)\n",
    "/run/bulkhead: neither sources nor pleg answers (bulkhead status shows the processes)\n",
)


class Node(InstalledNode):
    """A machine whose answers are given."""

    def __init__(self, *answers: tuple[int, str, str]) -> None:
        self.answers = list(answers)

    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        assert command[:2] == ("bulkhead", "pods")
        return subprocess.CompletedProcess(command, *self.answers.pop(0))

    def import_images(self) -> None:
        raise AssertionError("not asked for")


def test_rows_count_only_where_all_processes_have_answered() -> None:
    answers = [(0, '[{"restarts": 0}]', NOTES[0]), (0, '[{"restarts": 0}]', NOTES[1]), (1, "", NOTES[2])]
    node = Node(*answers, (0, '[{"restarts": 1}]', ""))
    assert node.pods() == [{"restarts": 1}] and not node.answers
