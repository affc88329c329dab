"""The state of the agent from beats and followed streams."""

import pytest

from bus.messages.beat import Beat
from bus.messages.followed import Followed, Replicated
from bus.messages.services import SERVICES
from bus.messages.streams import NODE_OBJECT, PODS_API_STATUS, PODS_DESIRED, PODS_MIRRORS
from services.report.node import ReportInputs, report
from services.report.processes import ProcessFacts
from shared.model.frozen_copy import replace

OF_THE_API_SERVER = (NODE_OBJECT, PODS_API_STATUS, PODS_MIRRORS)
EMPTY = Replicated(incarnation="s", number=0, items=0, complete=False, stale=False)
INPUTS = ReportInputs(
    now=2.0,
    node="here",
    joins_cluster=False,
    run_dir="/run",
    processes=dict.fromkeys(SERVICES, ProcessFacts(holder=None)),
    beats={
        "sources": Beat(
            service="sources",
            incarnation="s",
            protocol="1",
            pid=1,
            sent_at=1.0,
            streams={stream.name: 0 for stream in (*OF_THE_API_SERVER, PODS_DESIRED)},
        )
    },
    followed={
        "server": Followed(
            incarnation="f", streams={stream.name: EMPTY for stream in (*OF_THE_API_SERVER, PODS_DESIRED)}
        )
    },
    observed=None,
    node_object=None,
    pods=(),
)


@pytest.mark.parametrize(
    ("joins_cluster", "expected"),
    [(False, [PODS_DESIRED]), (True, [*OF_THE_API_SERVER, PODS_DESIRED])],
    ids=["alone", "in a cluster"],
)
def test_without_an_api_server_what_it_fills_is_not_incomplete(joins_cluster: bool, expected: list[object]) -> None:
    found = report(replace(INPUTS, joins_cluster=joins_cluster))
    incomplete = {row.name for row in found.streams if row.incomplete_in == ("server",)}
    assert incomplete == {stream.name for stream in (PODS_DESIRED, *OF_THE_API_SERVER) if stream in expected}


def in_progress(*pods: int, over: bool = False) -> dict[str, object]:
    """The item of node.shutdown, as JSON: so many pods of each group are left."""
    groups = [{"priority": 1000 * index, "seconds": 30.0, "pods": count} for index, count in enumerate(pods)]
    return {"in_progress": True, "over": over, "groups": groups, "group": 0, "unfinished": []}


@pytest.mark.parametrize(
    ("shutdown", "line"),
    [
        (
            in_progress(3, 0, 2),
            "the machine shuts down, and waits for pods, by priority: 3 from 0 on, 2 from 2000 on",
        ),
        (in_progress(0, 0), "the machine shuts down: its pods have had their time"),
        (in_progress(1, 0, over=True), "the machine shuts down: its pods have had their time"),
        (None, ""),
        ({"in_progress": False, "over": True, "groups": [], "unfinished": ["web"]}, ""),
    ],
)
def test_a_shutdown_in_progress_names_the_pods_that_the_machine_waits_for(
    shutdown: dict[str, object] | None, line: str
) -> None:
    found = report(replace(INPUTS, shutdown=shutdown))
    assert [one for one in found.problems if "shuts down" in one] == ([line] if line else [])
