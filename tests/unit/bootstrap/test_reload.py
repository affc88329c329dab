"""A reload brings a checked configuration into force, with the reasons for each restart, or changes nothing."""

import logging
import os
from pathlib import Path

import pytest

from services.bootstrap.adapters.serving_pair import PairReport
from services.bootstrap.controllers import reload as reloading
from services.bootstrap.controllers import startup
from services.bootstrap.controllers.reload import reload, report
from services.bootstrap.controllers.startup import BootstrapStartup, Evaluation
from services.frame.generation import SUPERVISORD, generation_of
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.findings import WARNING, ConfigurationRefusedError, Finding
from shared.config.loader import load_effective
from shared.config.resolve import Resolved
from shared.errors import OperatorError
from shared.model.frozen_copy import replace


class Node:
    """bootstrap after its start; `edit` is what the next evaluation finds."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BULKHEAD_HOME", str(home))
        monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
        monkeypatch.setenv(SUPERVISORD, generation_of(os.getppid()))
        run_dir = home / "run"
        run_dir.mkdir()
        self.config = self.edit = EffectiveConfig(
            node_name="n1", root_dir="/r", run_dir=str(run_dir), log_dir="/l", cert_dir="/c", kubeconfig="/k"
        )
        self.refused: tuple[str, ...] = ()
        self.found: tuple[Finding, ...] = ()
        self.begun = BootstrapStartup()
        self.begun.replace_config(self.config)
        monkeypatch.setattr(startup, "evaluate_all", self._evaluate)

    def _evaluate(self, *_: object, **__: object) -> Evaluation:
        if self.refused:
            raise ConfigurationRefusedError(self.refused)
        return Evaluation(Resolved(self.edit, found=self.found), PairReport())

    @property
    def in_force(self) -> EffectiveConfig:
        """What the services read."""
        return load_effective(self.config.run_dir)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_a_changed_configuration_is_brought_into_force(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node.edit = replace(node.config, max_pods=7, eviction_soft={"pid.available": "5"}, document={"maxPods": 7})
    assert reload(node.begun, node.config) == node.in_force == node.edit
    assert [record.message for record in caplog.records] == [
        "reload: evictionSoft has changed: pleg, podsync restart",
        "reload: maxPods has changed: podsync, status restart",
        "reload: pleg, podsync, status restart",
    ]


def test_an_unchanged_one_is_not_written(node: Node) -> None:
    before = (Path(node.config.run_dir) / CONFIG_NAME).stat().st_ino
    assert reload(node.begun, node.config) is node.config
    assert (Path(node.config.run_dir) / CONFIG_NAME).stat().st_ino == before


def test_a_refused_one_changes_nothing(node: Node) -> None:
    node.refused = ("kubelet.yaml:3:1: maxPods: is many",)
    with pytest.raises(ConfigurationRefusedError):
        reload(node.begun, node.config)
    assert node.in_force == node.config


def test_a_setting_that_needs_a_restart_of_the_agent_is_refused_with_all_others(node: Node) -> None:
    node.edit = replace(node.config, node_name="n2", root_dir="/other", max_pods=7)
    with pytest.raises(ConfigurationRefusedError) as refused:
        reload(node.begun, node.config)
    remedy = "is not changed by a reload (restart the agent, or undo the change)"
    assert refused.value.lines == (f"--hostname-override: {remedy}", f"--root-dir: {remedy}")
    assert node.in_force == node.config


def test_credentials_are_looked_at_only_when_their_settings_change(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "find_refusal", lambda config, wall: (f"--kubeconfig: {config.kubeconfig}: no",))
    node.edit = replace(node.config, max_pods=7)
    node.config = reload(node.begun, node.config)
    node.edit = replace(node.config, kubeconfig="/other")
    with pytest.raises(ConfigurationRefusedError) as refused:
        reload(node.begun, node.config)
    assert refused.value.lines == ("--kubeconfig: /other: no",)
    assert node.in_force == node.config


def test_a_full_disk_leaves_the_last_configuration_in_force(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    node.edit = replace(node.config, max_pods=7)
    monkeypatch.setattr(startup, "write_atomically", full)
    with pytest.raises(OperatorError, match="No space left on device"):
        reload(node.begun, node.config)
    assert node.in_force == node.config
    monkeypatch.undo()
    (Path(node.config.run_dir) / CONFIG_NAME).unlink()
    node.begun.restore_files()
    assert node.in_force == node.config, "what is restored is what was in force"


def test_a_change_that_only_the_log_and_configz_show_restarts_no_service(node: Node) -> None:
    document = {"logging": {"verbosity": 4}}
    lines = report(node.config, replace(node.config, verbosity=4, document=document))
    assert lines == ("reload: logging has changed: no service restarts", "reload: no service restarts")


def test_a_remark_is_logged_again_only_where_the_evaluation_before_did_not_have_it(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    old, (one, two) = node.config, (Finding(WARNING, "", f"{key} is deprecated") for key in ("one", "two"))
    for pods, found in enumerate([(one,), (one, two), (two,), (one, two)], 1):
        node.edit, node.found = replace(old, max_pods=pods, document={"maxPods": pods}), found
        old = reload(node.begun, old)
    logged = [record.message for record in caplog.records if "deprecated" in record.message]
    assert [line.partition(" ")[0] for line in logged] == ["one", "two", "one"]
