"""How long a container waits after each of its ends: as the kubelet makes it wait, which starts what it kills in the
very sync that kills it, by a view in which the killed instance still runs (pods.md 7.2, A.11, B.1)."""

import pytest

from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from tests.unit.podsync.play import Play, a_container, a_pod, every_step

EXIT, PROBE, SANDBOX = "exit", "probe", "sandbox"
BY_ITSELF, BY_PROBE = (EXIT,), (PROBE,)
ALWAYS_300 = (0, 10, 20, 40, 80, 160, 300, 300, 300)

WAITS = [
    # seconds that each instance runs, how they end in turn, seconds from each end to the next start
    (1, BY_ITSELF, ALWAYS_300),
    (1, BY_PROBE, (0, 0, 10, 20, 40, 80, 160, 300, 0, 300, 0)),
    (1, (EXIT, PROBE), (0, 10, 20, 40, 80, 160, 300, 0, 300, 0)),
    (1, (PROBE, EXIT), (0, 0, 10, 20, 40, 80, 160, 300, 0, 300, 0)),
    (30, BY_ITSELF, ALWAYS_300),
    (30, BY_PROBE, (0, 0, 0, 0, 40, 80, 160, 300, 0, 300, 0)),
    (30, (EXIT, PROBE), (0, 0, 20, 0, 80, 160, 300, 0, 300, 0)),
    (30, (PROBE, EXIT), (0, 0, 0, 20, 0, 80, 160, 300, 0, 300, 0)),
    (30, (PROBE, PROBE, EXIT), (0, 0, 10, 0, 40, 80, 160, 300, 300, 0, 300, 300)),
    # what was counted is forgotten 600 s after the newest start that was, also while the container waits
    (350, BY_ITSELF, (0, 10, 20, 40, 80, 160, 250, 10, 20)),
    (350, BY_PROBE, (0,) * 9),
    (350, (EXIT, PROBE), (0, 0, 20, 0, 80, 0, 250, 0, 20)),
    (700, BY_ITSELF, (0,) * 6),
    (700, BY_PROBE, (0,) * 6),
    (700, (EXIT, PROBE), (0,) * 6),
]


def end(play: Play, how: str, name: str = "c") -> None:
    """End the container in this way, or its sandbox, whose pause process dies while the containers run on."""
    if how == EXIT:
        play.exit("u1", 1, name)
    elif how == PROBE:
        play.probed("u1", name, liveness="failure")
    else:
        play.sandboxes["u1"][-1] = replace(play.sandboxes["u1"][-1], state=SandboxState.NOTREADY)
        play.observe("u1")


def started_at_once(play: Play, times: int, how: str = PROBE) -> None:
    """End the container so many times. Each instance runs for 30 s, the last too."""
    for _ in range(times):
        play.later(30)
        end(play, how)
        assert "c" in dict(play.running("u1"))
    play.later(30)


def end_by_probe(play: Play, attempt: int) -> None:
    """Of this instance; a restarted podsync receives the failure again, from pleg."""
    end(play, PROBE)
    if ("c", attempt) in play.running("u1"):
        end(play, PROBE)


def wait(play: Play, name: str = "c") -> int:
    """Seconds until the container runs again."""
    for seconds in range(1000):
        if name in dict(play.running("u1")):
            return seconds
        play.later(1)
    raise AssertionError(f"{name} never runs again")


def reason(play: Play, name: str = "c") -> str:
    """Why the container is shown to wait, "" while it does not."""
    statuses = play.statuses["u1"].status["containerStatuses"]
    found = next(s["state"] for s in statuses if s["name"] == name)
    return str((found.get("waiting") or {}).get("reason", ""))


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("restarted", [False, True], ids=["in one process", "podsync restarted all the time"])
@pytest.mark.parametrize(("run", "ends", "waits"), WAITS)
def test_the_waits_are_the_kubelets(run: int, ends: tuple[str, ...], waits: tuple[int, ...], restarted: bool) -> None:
    play = Play().wanting(a_pod())
    seen = []
    for number in range(len(waits)):
        play.later(run)
        end(play, ends[number % len(ends)])
        if restarted:
            play.restart()
        seen.append(wait(play))
    assert tuple(seen) == waits
    assert play.statuses["u1"].status["containerStatuses"][0]["restartCount"] == len(waits)
    assert play.running("u1") == [("c", len(waits))]


def killed_to_the_fifth(play: Play, **fields: object) -> None:
    """Killed by its probe after 30 s each until the next start is the first that must wait: 40 s."""
    play.want(a_pod(containers=[a_container("c", **fields)]))
    started_at_once(play, 4)


def test_one_that_must_wait_after_its_kill_has_one_event() -> None:
    play = Play()
    killed_to_the_fifth(play)
    end(play, PROBE)
    assert reason(play) == "CrashLoopBackOff"
    waiting = play.statuses["u1"].status["containerStatuses"][0]["state"]["waiting"]
    assert waiting["message"] == "back-off 40s restarting failed container=c pod=web_default(u1)"
    assert wait(play) == 40
    back_offs = [e for e in play.events if e.startswith("Warning BackOff")]
    assert back_offs == ["Warning BackOff: Back-off restarting failed container c in pod web_default(u1)"]


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(24))
def test_a_death_at_any_step_of_it_changes_no_wait(step: int) -> None:
    play = Play(only_urgent=True)
    killed_to_the_fifth(play)
    play.kill_at, play.steps = step, 0
    end_by_probe(play, 4)
    assert wait(play) == 40, step
    play.later(30)
    end(play, PROBE)
    assert wait(play) == 80


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(24))
def test_nor_does_one_at_any_step_of_a_kill_that_need_not_wait(step: int) -> None:
    play = Play(only_urgent=True).wanting(a_pod())
    started_at_once(play, 2)
    play.kill_at, play.steps = step, 0
    end_by_probe(play, 2)
    assert wait(play) <= 1, step  # what was under way in the runtime may be in the way for a moment
    play.kill_at = -1
    play.later(30)
    end(play, EXIT)
    assert wait(play) == 20, step


def test_a_kill_that_fails_counts_like_any_end() -> None:
    play = Play().wanting(a_pod())
    started_at_once(play, 3)
    play.fail["KillContainer"] = ("DeadlineExceeded", "it took too long")
    end(play, PROBE)
    play.exit("u1", 137)
    assert wait(play) == 20, "the kubelet finds it ended in a later sync"


def test_a_kill_that_is_repeated_is_one_all_the_same() -> None:
    play = Play().wanting(a_pod())
    started_at_once(play, 3)
    play.fail["KillContainer"] = ("Unavailable", "away")
    end(play, PROBE)
    assert play.running("u1") == [("c", 3)]
    play.later(1)
    assert play.running("u1") == [("c", 4)]


def test_another_image_starts_at_once_and_afresh() -> None:
    play = Play(images={"busybox:1", "newer:1"}).wanting(a_pod())
    for _ in range(3):
        play.later(30)
        end(play, EXIT)
        wait(play)
    play.want(a_pod(containers=[a_container("c", image="newer:1")]))
    assert play.running("u1") == [("c", 4)]
    play.exit("u1", 1)
    assert wait(play) == 10, "its start was counted: there was one before that had ended"


def test_a_sidecar_is_no_exception() -> None:
    play = Play().wanting(a_pod(initContainers=[a_container("s", restartPolicy="Always")]))
    waits = []
    for _ in range(6):
        play.later(30)
        end(play, PROBE, "s")
        waits.append(wait(play, "s"))
    assert waits == [0, 0, 0, 0, 40, 80]
    assert play.running("u1").count(("c", 0)) == 1


def test_what_is_stopped_with_its_sandbox_starts_in_the_same_sync() -> None:
    play = Play().wanting(a_pod())
    waits = []
    for _ in range(6):
        play.later(30)
        end(play, SANDBOX)
        waits.append(wait(play))
    assert waits == [0, 0, 0, 0, 40, 80]


def test_also_when_it_could_not_be_stopped_at_once() -> None:
    play = Play().wanting(a_pod())
    started_at_once(play, 3, SANDBOX)
    play.fail["KillPod"] = ("Unavailable", "away")
    end(play, SANDBOX)
    assert play.running("u1") == [("c", 3)]
    play.later(1)
    assert play.running("u1") == [("c", 4)], "the sync that kills it starts the next one"


def test_but_behind_init_containers_in_a_later_one() -> None:
    play = Play().wanting(a_pod(initContainers=[a_container("i")]))
    play.exit("u1", 0, "i")
    waits = []
    for _ in range(4):
        play.later(30)
        end(play, SANDBOX)
        play.exit("u1", 0, "i")
        waits.append(wait(play))
    assert waits == [0, 10, 20, 40]


def test_a_sandbox_that_cannot_be_made_ends_the_sync() -> None:
    play = Play().wanting(a_pod())
    started_at_once(play, 2, SANDBOX)
    play.fail["RunPodSandbox"] = ("Unknown", "no network")
    end(play, SANDBOX)
    assert wait(play) == 10


def test_a_container_found_in_no_known_state_is_killed_and_started_likewise() -> None:
    play = Play().wanting(a_pod())
    for _ in range(3):
        play.later(5)
        newest = play.containers["u1"][-1]
        play.containers["u1"][-1] = replace(newest, state=ContainerState.UNKNOWN)
        play.observe("u1")
        waited = wait(play)
    assert waited == 10, "5 s after the end before that one"
    assert 'Normal Killing: Container is in "unknown" state, try killing it before restart' in play.events
