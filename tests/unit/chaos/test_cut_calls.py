"""containerd's log names the call that was cut; what it does not explain is unknown."""

from tests.chaos.cut_calls import BRIDGE_DELETE, UNKNOWN, CutCalls, sandboxes_of_rules

RAN, CUT, WITH_A_CUT_START, CONTAINER = (letter * 64 for letter in "abcd")
KILLED = "netplugin failed with no error message: signal: killed"
LOG = rf"""
time="T" level=info msg="RunPodSandbox for &PodSandboxMetadata{{Name:p,Attempt:0,}} returns sandbox id \"{RAN}\""
time="T" level=info msg="RunPodSandbox for &PodSandboxMetadata{{Name:q,Attempt:0,}} returns sandbox id \"{WITH_A_CUT_START}\""
time="T" level=info msg="CreateContainer within sandbox \"{WITH_A_CUT_START}\" for &ContainerMetadata{{Name:c,}} returns container id \"{CONTAINER}\""
time="T" level=error msg="StartContainer for \"{CONTAINER}\" failed" error="failed to create shim task: context canceled"
time="T" level=error msg="StopPodSandbox for \"{RAN}\" failed" error="failed to destroy network for sandbox \"{RAN}\": plugin type=\"bridge\" failed (delete): {KILLED}"
time="T" level=error msg="StopPodSandbox for \"{CUT}\" failed" error="failed to destroy network for sandbox \"{CUT}\": plugin type=\"portmap\" failed (delete): {KILLED}"
"""  # noqa: E501


def test_a_shim_is_left_by_a_sandbox_that_was_never_returned_or_a_container_whose_start_was_cut() -> None:
    cut = CutCalls(LOG)
    assert cut.cause_of_shim(CUT) == "RunPodSandbox"
    assert cut.cause_of_shim(WITH_A_CUT_START) == "StartContainer"
    assert cut.cause_of_shim(RAN) == UNKNOWN


def test_a_rule_is_left_by_a_bridge_plugin_that_was_killed_as_it_deleted_the_network() -> None:
    cut = CutCalls(LOG)
    assert [cut.cause_of_rule(sandbox) for sandbox in (RAN, CUT)] == [BRIDGE_DELETE, UNKNOWN]
    rule = f'-A CNI-1 -s 10.0.0.2/32 -m comment --comment name: "b" id: "{RAN}" -j ACCEPT'
    assert sandboxes_of_rules([rule, rule]) == {RAN}
