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
