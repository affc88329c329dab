"""Which ResourceSlices are deleted when, as drivers come and go."""

import math

from services.status.core.slice_removals import GRACE_SECONDS, Removal, SliceRemovals


def test_the_slices_of_a_driver_that_is_gone_are_deleted_after_the_grace_and_not_if_it_returns() -> None:
    removals = SliceRemovals()
    removals.set_known(True, 0.0)
    removals.done(Removal(), 30.0)
    for driver in ("a.com", "b.com"):
        removals.registered(driver)
        removals.deregistered(driver, 100.0)
    assert removals.next_due(100.0) == 100.0 + GRACE_SECONDS
    assert removals.due(100.0 + GRACE_SECONDS - 0.1) == []
    removals.registered("b.com")
    assert removals.due(100.0 + GRACE_SECONDS) == [Removal("a.com")]
    assert removals.next_due(100.0 + GRACE_SECONDS) == math.inf, "what is due now is not waited for"
    removals.done(Removal("a.com"), 200.0)
    assert (removals.due(1e9), removals.next_due(200.0)) == ([], math.inf)


def test_a_node_has_drivers_while_one_is_registered_or_has_slices_to_delete() -> None:
    removals = SliceRemovals()
    removals.set_known(True, 0.0)
    has_drivers = [removals.has_drivers]
    removals.registered("a.com")
    has_drivers.append(removals.has_drivers)
    removals.deregistered("a.com", 10.0)
    has_drivers.append(removals.has_drivers)
    removals.done(Removal("a.com"), 200.0)
    has_drivers.append(removals.has_drivers)
    assert has_drivers == [False, True, True, False]


def test_a_process_that_starts_deletes_the_slices_of_all_drivers_but_those_that_are_registered_or_in_their_grace() -> (
    None
):
    removals = SliceRemovals()
    removals.registered("a.com")
    removals.registered("b.com")
    assert (removals.due(1e9), removals.next_due(0.0)) == ([], math.inf), "others may be about to register"
    removals.set_known(True, 10.0)
    removals.set_known(True, 20.0)
    removals.deregistered("b.com", 35.0)
    assert removals.due(39.9) == []
    [sweep] = removals.due(40.0)
    assert sweep.selector("n1") == "spec.driver!=a.com,spec.driver!=b.com,spec.nodeName=n1"
    removals.done(sweep, 40.0)
    assert (removals.due(64.9), removals.due(65.0)) == ([], [Removal("b.com")])
    assert Removal("b.com").selector("n1") == "spec.driver=b.com,spec.nodeName=n1"
    assert Removal().selector("n1") == "spec.nodeName=n1"


def test_nothing_is_deleted_while_drivers_may_be_there_that_are_not_known() -> None:
    removals = SliceRemovals()
    removals.set_known(True, 0.0)
    removals.registered("a.com")
    removals.deregistered("a.com", 10.0)
    removals.set_known(False, 20.0)
    assert (removals.due(100.0), removals.next_due(100.0)) == ([], math.inf)
    removals.set_known(True, 200.0)
    assert removals.due(200.0) == [Removal("a.com")], "its grace has ended"
    assert removals.next_due(200.0) == 200.0 + GRACE_SECONDS, "others get theirs from now on"
