"""Each feature that the node declares has a test of its behaviour, and each known one its place in the table."""

from shared.config.gate_table import BUILT_FEATURES, GATES, Declared
from tests.architecture.checkout import text_of

TESTS = {
    "ExtendWebSocketsToKubelet": ("tests/e2e/test_streaming.py", "test_websocket_v5"),
    "InPlacePodLevelResourcesVerticalScaling": (
        "tests/service/podsync/test_resize.py",
        "test_the_resources_of_the_pod_itself_are_resized",
    ),
    "InPlacePodVerticalScalingInitContainers": (
        "tests/service/podsync/test_resize.py",
        "test_an_init_container_is_resized_while_it_runs",
    ),
    "InPlacePodVerticalScalingMemoryBackedVolumes": (
        "tests/service/podsync/test_resize.py",
        "test_volumes_in_memory_shrink_before_the_pod_and_grow_after_it",
    ),
    "RestartAllContainersOnContainerExits": (
        "tests/e2e/behaviour/test_restart_rules.py",
        "test_all_containers_start_over_in_the_same_sandbox",
    ),
}


def test_each_declared_feature_has_a_test_of_its_behaviour() -> None:
    assert TESTS.keys() == BUILT_FEATURES
    for file, test in TESTS.values():
        assert f"async def {test}(" in text_of(file)


def test_every_feature_that_needs_declared_features_is_declared_or_known_not_to_be_built() -> None:
    needing = {name for name, gate in GATES.items() if "NodeDeclaredFeatures" in gate.needs}
    assert needing == {name for name, gate in GATES.items() if gate.declared is not Declared.NEVER}
