"""The one line about a runtime in trouble: it names endpoint and remedy, and does not flip to and fro."""

from services.pleg.core.runtime_trouble import RuntimeTrouble
from shared.cri.interface import PartialObservationError, RuntimeCallError

REFUSED = RuntimeCallError("ListContainers", "Unavailable", "connection refused")


def test_the_line_names_endpoint_call_error_and_remedy() -> None:
    trouble = RuntimeTrouble("unix:///run/c.sock")
    assert trouble.note("list", REFUSED)
    assert trouble.line == (
        "unix:///run/c.sock: the container runtime does not answer ListContainers: rpc error: code = Unavailable "
        "desc = connection refused (start it, or set containerRuntimeEndpoint to the socket of a CRI v1 runtime; "
        "retrying)"
    )


def test_a_second_kind_of_call_that_fails_does_not_change_the_line() -> None:
    trouble = RuntimeTrouble("unix:///run/c.sock")
    trouble.note("list", REFUSED)
    assert not trouble.note("status", RuntimeCallError("Status", "Unavailable", "connection refused"))
    assert not trouble.note("list", REFUSED)


def test_one_kind_of_call_that_goes_well_again_ends_the_trouble() -> None:
    trouble = RuntimeTrouble("unix:///run/c.sock")
    trouble.note("list", REFUSED)
    trouble.note("status", REFUSED)
    assert trouble.note("list", None)
    assert trouble.line is None


def test_a_call_that_goes_well_as_before_leaves_the_trouble_of_another() -> None:
    trouble = RuntimeTrouble("unix:///run/c.sock")
    trouble.note("status", REFUSED)
    assert not trouble.note("list", None)
    assert trouble.line is not None


def test_pods_that_cannot_be_shown_are_named() -> None:
    trouble = RuntimeTrouble("unix:///run/c.sock")
    first = RuntimeCallError("ContainerStatus", "Internal", "no task")
    trouble.note("list", PartialObservationError(first, {}, frozenset({"b", "a"})))
    assert trouble.line is not None and "cannot show pods a, b: " in trouble.line
