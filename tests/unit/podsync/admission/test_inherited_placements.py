"""A takeover: what an earlier kubelet gave to pods stays theirs until they are listed and admitted, or are gone."""

from typing import Any

from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from tests.unit.podsync.play import Play
from tests.unit.podsync.sync.test_cpu_sets import a_play, burstable, cpus_of, guaranteed


def taken_over(*cpus: int, container: str = "c", **fields: Any) -> Play:
    """Return a start of podsync that found in the file that pod u1 has these CPUs."""
    placement = PodPlacement(containers={container: ContainerPlacement(cpus=frozenset(cpus))})
    return a_play(inherited={"u1": placement}, listed=True, **fields)


def test_a_pod_that_is_listed_later_keeps_its_cpus() -> None:
    play = taken_over(1, sources_complete=False)
    play.want(guaranteed("u2", 2))
    play.want(burstable("u3"))
    assert (cpus_of(play, "u2"), cpus_of(play, "u3")) == ("2-3", "0")
    play.want(guaranteed("u1", 1))
    assert cpus_of(play, "u1") == "1"
    assert play.disk["u1"]["placement"]["c"]["cpus"] == "1"


def test_a_pod_keeps_other_cpus_than_it_would_get_now_and_after_another_start() -> None:
    play = taken_over(3)
    play.wanted["u1"] = guaranteed("u1", 1)
    play.restart()
    assert cpus_of(play, "u1") == "3"
    play.inherited = {}  # the file is not needed any more
    play.restart()
    assert cpus_of(play, "u1") == "3"


def test_the_cpus_of_a_pod_that_is_gone_are_free_once_the_sources_have_listed_all() -> None:
    play = taken_over(1, 2, sources_complete=False, source="api")
    play.want(guaranteed("u2", 2))
    assert "u2" not in play.disk or not play.disk["u2"].get("admission_decided")
    assert play.core.tracked["u2"].saved.rejected == ""
    play.sources_complete = True
    play.restart()
    assert cpus_of(play, "u2") == "1-2"


def test_without_room_beside_a_listed_pod_of_the_file_another_one_is_rejected() -> None:
    play = taken_over(1, 2)
    play.want(guaranteed("u1", 2))
    play.want(guaranteed("u2", 2))
    assert cpus_of(play, "u1") == "1-2"
    assert play.core.tracked["u2"].saved.rejected == "UnexpectedAdmissionError"


def test_a_container_that_the_pod_no_longer_has_gives_nothing() -> None:
    play = taken_over(3, container="earlier")
    play.want(guaranteed("u1", 1))
    assert cpus_of(play, "u1") == "1"


def test_what_is_written_for_the_next_kubelet_has_the_pods_that_may_still_come() -> None:
    play = taken_over(1, sources_complete=False)
    placements = play.core.placements
    before = placements()
    assert set(before) == {"u1"}
    assert placements() is before
    play.want(guaranteed("u2", 1))
    both = placements()
    assert {uid: placed.containers["c"].cpus for uid, placed in both.items()} == {"u1": {1}, "u2": {2}}
    assert placements() is both
    play.drop("u2")
    assert set(placements()) == {"u1"}
