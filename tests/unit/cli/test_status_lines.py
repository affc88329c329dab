"""What `bulkhead status` prints of many pods: the verdict above them stays in sight in a terminal."""

import pytest
from msgspec import to_builtins

from bus.messages.podsync import PodStatus
from services.cli.agent.status import status_lines
from services.cli.pods.listing import wide_table
from services.cli.terminal.table import Paint
from services.report.node import Report, RuntimeRow
from services.report.pod_rows import PodFacts, PodRow, pod_row
from shared.model.frozen_copy import replace


def waiting(number: int) -> PodRow:
    return PodRow(
        namespace="shop", name=f"web-{number}", uid=f"u{number}", source="api", state="Pending", ready=0, containers=1,
        restarts=0, ip="", started="", waits_for="its start",
    )  # fmt: skip


def report(pods: int) -> Report:
    return Report(
        node="here", standalone=True, run_dir="/run", api_server="", node_ready=None, lease_age=None,
        runtime=RuntimeRow(known=False), processes=(), streams=(), pods=tuple(map(waiting, range(pods))),
        pods_by_state={"Pending": pods}, problems=(),
    )  # fmt: skip


def lines(pods: int, form: str, width: int) -> list[str]:
    return status_lines(report(pods), form, width, Paint(False))


def test_a_terminal_shows_twenty_pods_that_wait_and_the_number_of_the_others() -> None:
    shown = lines(500, "text", 80)
    assert sum("web-" in line for line in shown) == 20
    assert shown[-1] == "480 more pods wait (bulkhead pods lists them)"
    assert sum("web-" in line for line in lines(20, "text", 80)) == 20
    assert "more pods wait" not in lines(20, "text", 80)[-1]


@pytest.mark.parametrize("form", ["text", "wide"])
def test_status_and_pods_show_that_a_pod_waits_for_its_turn_to_start(form: str) -> None:
    pending = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    turn = "its turn to start"
    item = PodStatus(uid="u", name="web", namespace="shop", version=(1, 1), status=pending, waits_for=turn)
    row = pod_row(PodFacts(uid="u", status=to_builtins(item)))
    of_status = status_lines(replace(report(0), pods=(row,)), form, 80, Paint(False))
    for shown in (of_status, wide_table((row,), 0, 0.0)):
        assert shown[-1].endswith(f"  {turn}")


def test_a_file_and_wide_have_every_pod() -> None:
    assert sum("web-" in line for line in lines(500, "text", 0)) == 500
    assert sum("web-" in line for line in lines(500, "wide", 80)) == 500


def test_at_40_columns_no_line_is_longer() -> None:
    assert max(map(len, lines(500, "text", 40))) <= 40


def test_the_reason_of_a_runtime_gives_the_terminal_no_command() -> None:
    found = replace(report(1), pods_by_state={"Error\x1b[2J\r\n": 1})
    assert status_lines(found, "text", 0, Paint(False))[-3:][0] == "pods: 1 (1 Error\\x1b[2J\\r\\n)"
