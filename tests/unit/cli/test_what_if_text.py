"""`bulkhead what-if` prints what a container would have alone."""

from bus.messages.pod_preview import PodPreview, PreviewedContainer
from bus.messages.podsync import GivenDevices, NumaMemory
from services.cli.what_if.candidates import Candidate
from services.cli.what_if.text import Answer, lines
from shared.podspec.gated import unheeded_fields


def shown(container: PreviewedContainer) -> list[str]:
    """Return the printed lines from that of the container on."""
    candidate = Candidate(namespace="shop", name="web", file="web.yaml", source="api", pod={})
    printed = lines(Answer(candidate=candidate, preview=PodPreview(containers=(container,))))
    return printed[next(i for i, line in enumerate(printed) if line.startswith("  container ")) :]


def test_cpus_memory_and_devices_of_a_container_have_a_line_each() -> None:
    own = PreviewedContainer(
        name="web",
        kind="regular",
        cpus="2-3,8",
        memory=(NumaMemory(nodes=(0, 1), kind="memory", size=2 << 30),),
        devices=(GivenDevices(resource="example.com/gpu", ids=("gpu-0", "gpu-1\x1b[2J")),),
    )
    first, cpus, memory, devices = shown(own)
    assert first == "  container web: oom_score_adj 0"
    assert (cpus, memory) == ("    CPUs 2-3,8 alone", "    memory of NUMA nodes 0-1 alone: 2.0 GiB")
    assert devices.startswith("    example.com/gpu: gpu-0, gpu-1") and "\x1b" not in devices


def test_a_field_that_the_pod_runs_without_is_a_note() -> None:
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {"mode": 0o700}}]}}
    candidate = Candidate(namespace="shop", name="web", file="web.yaml", source="api", pod=pod)
    unheeded = unheeded_fields(pod, {}, "1.36")
    printed = lines(Answer(candidate=candidate, preview=PodPreview(), unsupported=unheeded))
    why = "the feature gate EmptyDirVolumeMode is off"
    assert printed[0] == "pod shop/web: admitted"
    assert f"  note: spec.volumes[0].emptyDir.mode: the pod runs without it: {why}" in printed


def test_a_container_that_shares_everything_has_none() -> None:
    assert shown(PreviewedContainer(name="web", kind="init")) == ["  container web (init): oom_score_adj 0"]


def test_what_a_pod_would_have_as_a_whole_is_printed_and_what_its_containers_share_of_it() -> None:
    memory = (NumaMemory(nodes=(1,), kind="memory", size=2 << 30),)
    sharing = PreviewedContainer(name="helper", kind="regular", pool_cpus="4-5")
    candidate = Candidate(namespace="shop", name="web", file="web.yaml", source="api", pod={})
    preview = PodPreview(pod_cpus="2-5", pod_memory=memory, containers=(sharing,))
    printed = lines(Answer(candidate=candidate, preview=preview))
    assert "  CPUs 2-5 for its containers alone" in printed
    assert "  memory of NUMA nodes 1 alone: 2.0 GiB" in printed
    assert printed[-1] == "    CPUs 4-5, shared with containers of its pod alone"
