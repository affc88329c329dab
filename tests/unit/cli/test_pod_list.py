"""`bulkhead pods` names the processes whose facts about the pods are missing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from services.cli.pods import listing
from services.report.pod_rows import PodFacts, PodRow, pod_row

FACTS = PodFacts(uid="u", status_known=True, runtime={"namespace": "shop", "name": "web"})


class AgentOf:
    """An agent of one pod."""

    def __init__(self, silent: tuple[str, ...]) -> None:
        self.silent = silent

    def pods(self) -> tuple[list[PodRow], list[PodFacts]]:
        return [pod_row(FACTS)], [FACTS]


@pytest.mark.parametrize(
    ("silent", "begin"),
    [
        ((), ""),
        (("volume",), "volume does not answer: facts about pods are missing ("),
        (("sources", "volume"), "sources, volume do not answer: facts about pods are missing ("),
    ],
)
def test_a_process_that_does_not_answer_is_named(
    silent: tuple[str, ...], begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def local_agent(_run_dir: str) -> Iterator[AgentOf]:
        yield AgentOf(silent)

    monkeypatch.setattr(listing, "local_agent", local_agent)
    out: list[str] = []
    err: list[str] = []
    assert listing.list_pods("", "", "", "json", out.append, err.append) == 0
    assert json.loads(out[0])[0]["name"] == "web"
    assert len(err) == len(silent[:1]) and all(line.startswith(begin) for line in err)
