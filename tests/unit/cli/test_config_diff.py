"""`bulkhead config diff` shows the effective values that differ, with origins, and what a reload costs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bus.lock import ServiceLock
from services.cli.command import main
from shared.config.evaluation import evaluate
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
GOOD = HEAD + "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBELET_ARGS", "")
    monkeypatch.delenv("BULKHEAD_RUN_DIR", raising=False)
    monkeypatch.setenv("BULKHEAD_HOME", str(tmp_path))
    return tmp_path


def file(home: Path, name: str, more: str = "") -> str:
    path = home / name
    path.write_text(GOOD + more)
    return str(path)


def diff(*words: str) -> Result:
    return CliRunner().invoke(main, ["config", "diff", *words])


def test_each_value_that_differs_is_shown_with_its_origins_and_services(home: Path) -> None:
    old, new = file(home, "old", "maxPods: 50\nport: 10250\n"), file(home, "new", "maxPods: 60\nevictionHard: {}\n")
    answer = diff(old, new, "--v=2")
    assert answer.exit_code == 1 and answer.stderr == ""
    assert "evictionHard.memory.available: restarts podsync, pleg\n  pods: pods are evicted where" in answer.stdout
    assert '\n  - "100Mi"  # default\n  + ' in answer.stdout
    assert f"maxPods: restarts podsync, status\n  - 50  # {old}:5:1\n  + 60  # {new}:5:1\n" in answer.stdout
    assert "\na reload restarts podsync, pleg, status; pods may be evicted for evictionHard" in answer.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "name", "effect", "end"),
    [
        ("", "cgroupRoot: /other\n", "cgroupRoot", "restart", "pods restart for cgroupRoot"),
        ("cgroupsPerQOS: false\nenforceNodeAllocatable: []\n", "", "cgroupsPerQOS", "restart", "pods restart for "),
        ("", "cgroupsPerQOS: false\nenforceNodeAllocatable: []\n", "cgroupsPerQOS", "later", ""),
        ("staticPodPath: /a\n", "staticPodPath: /b\n", "staticPodPath", "end", "some pods end for staticPodPath"),
        ("", "kubeReserved: {memory: 100Mi}\n", "kubeReserved.memory", "evict", "pods may be evicted for kubeReserved"),
        ("", "maxPods: 10\n", "maxPods", "later", "pods keep running"),
        ("maxPods: 10\n", "", "maxPods", "none", "pods keep running"),
        ("", "seccompDefault: true\n", "seccompDefault", "later", "pods keep running"),
        ("", "featureGates: {ContainerStopSignals: true}\n", "featureGates.ContainerStopSignals", "later", ""),
        ("", "port: 10260\n", "port", "none", "pods keep running"),
    ],
)
def test_what_becomes_of_running_pods_is_shown(
    home: Path, old: str, new: str, name: str, effect: str, end: str
) -> None:
    files = file(home, "old", old), file(home, "new", new)
    found = {one["name"]: one for one in json.loads(diff(*files, "-o", "json").stdout)}
    assert found[name]["pods"] == effect and bool(found[name]["pods_note"]) == (effect != "none")
    assert end in diff(*files).stdout.splitlines()[-1]


def test_a_value_that_is_written_in_another_way_does_not_differ(home: Path) -> None:
    answer = diff(file(home, "old"), file(home, "new", "maxPods: 110\nsyncFrequency: 60s\n"))
    assert (answer.exit_code, answer.stdout) == (0, "no effective value differs\n")


def test_what_a_running_agent_does_not_change_is_named(home: Path) -> None:
    embedded = "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\nembeddedContainerd: {enabled: true}\n"
    answer = diff(file(home, "old"), file(home, "new", embedded))
    assert "embeddedContainerd: not by a reload\n" in answer.stdout
    assert "\na reload refuses this: stop the agent and start it again for " in answer.stdout


def test_secrets_are_masked_and_their_change_is_still_seen(home: Path) -> None:
    url = "staticPodURL: http://192.0.2.1/\nstaticPodURLHeader: {Authorization: [%s]}\n"
    answer = diff(file(home, "old", url % "one-secret"), file(home, "new", url % "other-secret"))
    assert answer.exit_code == 1 and "secret" not in answer.output
    assert answer.stdout.startswith("staticPodURLHeader: restarts ")


def test_a_password_in_a_url_is_masked_and_its_change_is_still_seen(home: Path) -> None:
    url = "staticPodURL: http://agent:%s@192.0.2.1/\n"
    answer = diff(file(home, "old", url % "one-secret"), file(home, "new", url % "other-secret"))
    assert answer.exit_code == 1 and "secret" not in answer.output
    assert answer.stdout.startswith("staticPodURL: restarts ")
    answer = diff(file(home, "none"), file(home, "new", url % "other-secret"))
    assert "http://agent:<masked>@192.0.2.1/" in answer.stdout and "secret" not in answer.output


def test_programs_read_the_same_as_json(home: Path) -> None:
    old, new = file(home, "old"), file(home, "new", "maxPods: 60\n")
    [one] = json.loads(diff(old, new, "-o", "json").stdout)
    assert one == {
        "name": "maxPods", "old": 110, "new": 60, "old_origin": "default", "new_origin": f"{new}:5:1",
        "services": ["podsync", "status"], "fixed": False, "pods": "later",
        "pods_note": "pods that run stay; a new one is rejected (OutOfpods) while there are as many",
    }  # fmt: skip


def test_the_configuration_in_force_is_compared_with_a_file(home: Path) -> None:
    old, new = file(home, "old", "maxPods: 50\n"), file(home, "new", "maxPods: 60\n")
    assert diff("running", new).stderr.endswith(f"{home}/run: no agent runs (start it, or name two files)\n")
    (home / "run" / "locks").mkdir(parents=True)
    (home / "run" / CONFIG_NAME).write_bytes(encode_effective(evaluate([f"--config={old}", "--v=3"]).config, ""))
    lock = ServiceLock(home / "run", "bootstrap")
    assert lock.try_acquire()
    Path(old).write_text(GOOD + "maxPods: 70\n")
    assert diff("running", new, f"--config={old}", "--v=3").stdout == (
        f"maxPods: restarts podsync, status\n  - 50  # in force\n  + 60  # {new}:5:1\n\n"
        "a reload restarts podsync, status; pods keep running\n"
    )


@pytest.mark.parametrize("words", [(), ("one",), ("--v=2", "one", "two"), ("old", "--v=2")])
def test_without_two_names_it_is_wrong_usage(words: tuple[str, ...]) -> None:
    assert diff(*words).exit_code == 2


def test_a_refused_configuration_is_shown_with_its_place(home: Path) -> None:
    answer = diff(file(home, "old"), file(home, "new", "maxPods: many\n"))
    assert answer.exit_code == 2 and f"{home}/new:5:1: maxPods: " in answer.stderr
