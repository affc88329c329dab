"""Which CPUs a request gets: compared with all subsets of small machines, and known answers (node.md 4.10)."""

import random

import pytest

from services.podsync.core.placement.cpu_choice import NotEnoughCpusError, take_by_topology
from shared.model.cpu_list import parse_cpus
from shared.model.machine_topology import CpuSet, MachineTopology
from tests.unit.podsync.placement.cpu_oracle import best_cpus
from tests.unit.podsync.placement.machines import MACHINES, a_machine

_EVEN = [name for name in MACHINES if "offline" not in name]  # groups of one level have one size


def cpus(text: str) -> CpuSet:
    parsed = parse_cpus(text)
    assert parsed is not None
    return parsed


def draw_available(topology: MachineTopology, chance: random.Random) -> CpuSet:
    """Return some CPUs of the machine: mostly whole cores and nodes are gone, as after earlier requests."""
    available = topology.all_cpus
    for _ in range(chance.randint(0, 3)):
        victim = topology.cpus[chance.choice(sorted(topology.cpus))]
        level = chance.choice(("core", "id", "numa_node"))
        available -= {cpu.id for cpu in topology.cpus.values() if getattr(cpu, level) == getattr(victim, level)}
    return available


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("spread", [False, True], ids=["packed", "spread"])
@pytest.mark.parametrize("name", _EVEN)
def test_of_all_sets_of_cpus_the_one_is_taken_that_the_order_of_the_reference_puts_first(
    name: str, spread: bool
) -> None:
    topology, chance = MACHINES[name], random.Random(name)
    for _ in range(6):
        available = draw_available(topology, chance)
        for count in {1, 2, chance.randint(0, len(available)), len(available)} & {*range(len(available) + 1)}:
            taken = take_by_topology(topology, available, count, spread=spread)
            assert taken == best_cpus(topology, available, count, spread=spread), (available, count)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"spread": True}, {"by_uncore": True}], ids=str)
@pytest.mark.parametrize("name", MACHINES)
def test_exactly_the_requested_number_of_available_cpus_is_taken(name: str, options: dict[str, bool]) -> None:
    topology, chance = MACHINES[name], random.Random(name)
    for _ in range(20):
        available = draw_available(topology, chance)
        for count in range(len(available) + 1):
            taken = take_by_topology(topology, available, count, **options)
            assert taken <= available and len(taken) == count
        with pytest.raises(NotEnoughCpusError) as caught:
            take_by_topology(topology, available, len(available) + 1, **options)
        wanted, left = len(available) + 1, len(available)
        message = f"not enough cpus available to satisfy request: requested={wanted}, available={left}"
        assert str(caught.value) == message
        assert caught.value.reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize(
    ("machine", "available", "count", "expected"),
    [
        # The first core with both threads.
        (a_machine(1, 1, 4, 2), "0-7", 2, "0,4"),
        # A core of which a thread is taken is filled before another one is broken.
        (a_machine(1, 1, 4, 2), "0-3,5-7", 1, "0"),
        (a_machine(1, 1, 4, 2), "0-3,5-7", 3, "0-1,5"),
        # The socket with fewer free cores first, so that the other one stays whole.
        (a_machine(2, 2, 6, 2), "0-2,4-11", 2, "4,10"),
        # A request of a whole socket gets one, though the other has free CPUs.
        (a_machine(2, 2, 6, 2), "0-5,7-11", 6, "3-5,9-11"),
        # What a whole socket leaves over comes from the next one.
        (a_machine(2, 2, 6, 2), "0-11", 8, "0-3,6-9"),
        # Sockets with two NUMA nodes: first whole sockets, then whole nodes of the fuller socket.
        (a_machine(2, 4, 8, 1), "0-7", 4, "0-3"),
        (a_machine(2, 4, 8, 1), "0-4,6-7", 2, "6-7"),
        (a_machine(2, 4, 8, 1), "1-7", 2, "2-3"),
        # Node 0 has no whole core left, node 1 has.
        (a_machine(1, 2, 4, 2), "4-5,2-3,6-7", 2, "2,6"),
    ],
)
def test_known_packed_answers(machine: MachineTopology, available: str, count: int, expected: str) -> None:
    assert take_by_topology(machine, cpus(available), count) == cpus(expected)


@pytest.mark.parametrize(
    ("available", "count", "expected"),
    [("0-7", 2, "0-1"), ("0-7", 5, "0-4"), ("1-3,5-7", 3, "1-3"), ("0-7", 8, "0-7")],
)
def test_spread_takes_first_threads_of_different_cores(available: str, count: int, expected: str) -> None:
    assert take_by_topology(a_machine(1, 1, 4, 2), cpus(available), count, spread=True) == cpus(expected)


@pytest.mark.parametrize(
    ("machine", "available", "count", "expected"),
    [
        # A cache that holds the whole request is preferred to the fuller one that does not.
        (a_machine(1, 1, 8, 2, caches=2), "2-3,10-11,4-7,12-15", 6, "4-6,12-14"),
        # A whole cache, and the rest in cores of the other one.
        (a_machine(1, 1, 8, 2, caches=2), "1-7,9-15", 10, "1,4-7,9,12-15"),
        # An odd number leaves out the last thread.
        (a_machine(1, 1, 8, 2, caches=2), "0-15", 3, "0-1,8"),
        # The fullest cache that holds the request.
        (a_machine(1, 1, 8, 1, caches=4), "1-7", 1, "1"),
        (a_machine(1, 1, 8, 1, caches=4), "1-7", 2, "2-3"),
        # No cache holds three CPUs: one whole, and one of the fullest.
        (a_machine(1, 1, 8, 1, caches=4), "1-7", 3, "1-3"),
        # Cores are counted, not threads: both first cores have one thread left, so no part fits and cores are packed.
        (a_machine(1, 1, 4, 2, caches=1), "4-7", 3, "4-6"),
        # Of caches with as many free CPUs, the one in the socket with fewer.
        (a_machine(2, 4, 16, 1, caches=8), "0-1,4-10,12-13", 1, "12"),
        # A whole NUMA node goes before caches.
        (a_machine(2, 2, 8, 1, caches=4), "1-7", 4, "4-7"),
    ],
)
def test_known_answers_with_alignment_to_caches(
    machine: MachineTopology, available: str, count: int, expected: str
) -> None:
    assert take_by_topology(machine, cpus(available), count, by_uncore=True) == cpus(expected)


@pytest.mark.long
@pytest.mark.parametrize("name", ["two caches in a node, SMT", "two sockets of two caches"])
def test_a_request_that_whole_cores_of_one_cache_can_serve_stays_in_one_cache(name: str) -> None:
    topology, chance = MACHINES[name], random.Random(name)
    caches = {cpu.uncore_cache for cpu in topology.cpus.values()}
    of_cache = {
        cache: frozenset(cpu.id for cpu in topology.cpus.values() if cpu.uncore_cache == cache) for cache in caches
    }
    compared = 0
    for _ in range(200):
        available = topology.whole_cores(draw_available(topology, chance))
        for count in range(1, max(map(len, of_cache.values())) + 1):
            if any(len(available & members) >= count for members in of_cache.values()):
                taken = take_by_topology(topology, available, count, by_uncore=True)
                assert any(taken <= members for members in of_cache.values()), (available, count)
                compared += 1
    assert compared > 200


def test_offline_siblings_do_not_make_a_taken_core_whole() -> None:
    """Three cores have two threads, core 1 has one: a request of two gets a whole core, never half of two."""
    topology = MACHINES["a sibling offline"]
    assert take_by_topology(topology, topology.all_cpus, 1) == cpus("1")
    assert take_by_topology(topology, cpus("0,2-4,6-7"), 2) == cpus("0,4")
