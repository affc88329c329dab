"""What is done and checked in which boot of the machine. Read inside, to do it, and outside, to have one test of each.

A phase is one boot, or the part of one after its `prepare`. Its first check is its gate: where it fails, the others are
not tried, for each would only wait in vain. Plain functions, with the memory over boots for those that take it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.machine.inside import checks_cgroups as cgroups
from tests.machine.inside import checks_restarts as restarts
from tests.machine.inside import node, pods

Check = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """`leave`: how this phase ends: by going `on` to the next, a `reboot`, a power `cut`, or the `end` of it all."""

    name: str
    prepare: Callable[[], None] = field(default=lambda: None)
    checks: tuple[Check, ...]
    leave: Literal["on", "reboot", "cut", "end"]
    before_leaving: Callable[[], None] = field(default=lambda: None)


def first_boot() -> None:
    """Swap, containerd, the agent and its pods."""
    node.swap_on()
    node.install_with_systemd_driver()
    restarts.start_one_by_one({**pods.STEADY, **pods.ENDING})


def other_driver() -> None:
    """The same pods under the other driver and the embedded containerd."""
    node.change_to_cgroupfs_driver()
    restarts.start_one_by_one({**pods.STEADY, "eater": pods.ENDING["eater"]})


_HIERARCHY: tuple[Check, ...] = (
    cgroups.containers_run_below_their_pods_cgroup,
    cgroups.the_pods_cgroups_have_their_values,
    cgroups.the_levels_above_have_theirs,
    cgroups.containers_have_their_values,
    cgroups.a_container_sees_its_limits,
)
_KILLS: tuple[Check, ...] = (
    restarts.any_service_may_be_killed,
    restarts.the_whole_agent_may_be_killed,
    restarts.containerd_may_be_killed,
)
_AFTER_A_BOOT: tuple[Check, ...] = (
    restarts.the_machine_has_booted,
    restarts.the_kernel_has_the_settings_of_a_kubelet,
    restarts.the_pods_from_before_the_boot_run_again,
    restarts.init_containers_have_run_again,
    restarts.its_story_contains_the_boot,
    *_HIERARCHY,
)

PHASES = (
    Phase(
        name="systemd",
        prepare=first_boot,
        checks=(
            restarts.the_agent_is_up_by_its_unit,
            restarts.the_kernel_has_the_settings_of_a_kubelet,
            restarts.the_steady_pods_run,
            *_HIERARCHY,
            cgroups.systemd_has_the_same_values_and_keeps_them_over_a_reload,
            restarts.a_pod_that_is_to_run_once_has_run_once,
            cgroups.a_container_over_its_memory_limit_is_oom_killed,
            restarts.a_user_namespace_is_refused_where_the_runtime_has_none,
            *_KILLS,
            restarts.the_log_has_no_damage,
        ),
        leave="reboot",
    ),
    Phase(
        name="systemd, rebooted",
        checks=(
            restarts.the_agent_is_up_by_its_unit,
            restarts.the_steady_pods_run,
            *_AFTER_A_BOOT,
            restarts.a_pod_that_is_to_run_once_has_run_once,
            restarts.what_has_failed_stays_failed,
            restarts.the_log_has_no_damage,
        ),
        leave="cut",
        before_leaving=lambda: node.put(pods.SUDDEN),
    ),
    Phase(
        name="systemd, power cut",
        checks=(
            restarts.the_agent_is_up_by_its_unit,
            restarts.the_steady_pods_run,
            *_AFTER_A_BOOT,
            restarts.what_was_begun_when_the_power_went_is_done,
            restarts.a_pod_that_is_to_run_once_has_run_once,
            restarts.what_has_failed_stays_failed,
            restarts.the_log_has_no_damage,
        ),
        leave="on",
    ),
    Phase(
        name="cgroupfs",
        prepare=other_driver,
        checks=(
            restarts.the_agent_is_up_by_its_unit,
            restarts.the_steady_pods_run,
            *_HIERARCHY,
            cgroups.a_container_over_its_memory_limit_is_oom_killed,
            *_KILLS,
        ),
        leave="reboot",
    ),
    Phase(
        name="cgroupfs, rebooted",
        checks=(
            restarts.the_agent_is_up_by_its_unit,
            restarts.the_steady_pods_run,
            *_AFTER_A_BOOT,
            restarts.what_has_failed_stays_failed,
            restarts.the_log_has_no_damage,
        ),
        leave="end",
    ),
)


def sentence(check: Check) -> str:
    """The check's name as people read it."""
    return check.__name__.replace("_", " ")


def expected(*phases: Phase) -> list[tuple[str, str]]:
    """(phase, check) of every check of these phases, or of all."""
    return [(phase.name, sentence(check)) for phase in phases or PHASES for check in phase.checks]


def call(check: Check, state: dict[str, Any]) -> None:
    """Run it, with what is remembered over boots where it takes that."""
    if check.__code__.co_argcount:
        check(state)
    else:
        check()
