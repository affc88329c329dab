"""The smallest benchmark there is, with both kubelets: its measurements, report and files."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench.agents import BULKHEAD, GO, go_version
from tests.support.clusters.control_plane import assets
from tests.support.installed.lacking import lack

pytestmark = [pytest.mark.root, pytest.mark.night, pytest.mark.timeout(300)]
CHECKOUT = Path(__file__).resolve().parents[2]
MEASURED = {"floor.start", "floor.stop", "floor.container", "floor.exit", "memory.empty", "pods.ready", "pods.gone"}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)


def test_both_kubelets_are_measured_and_the_results_are_stored(tmp_path: Path) -> None:
    if not go_version(assets()):
        lack("no Go kubelet beside the control plane: make assets, or set KUBEBUILDER_ASSETS to a folder with one")
    few = ["--rounds=1", "--samples=1", "--only=floor,empty,pods", f"--results={tmp_path}", "--name=few"]
    done = run(*few)
    assert done.returncode == 0, done.stdout + done.stderr
    place = tmp_path / "few"
    results = json.loads((place / "results.json").read_bytes())
    rows: dict[str, Any] = {row["key"]: row for row in results["figures"]}
    assert set(rows) == MEASURED
    for key, row in rows.items():
        assert {cell["state"] for cell in row["agents"].values()} == {"measured"}, key
    ready = rows["pods.ready"]
    floor = rows["floor.start"]["agents"]["floor"]["summary"]["p50"]
    assert floor > 0
    assert {GO, BULKHEAD} == set(ready["agents"])
    assert ready["ratio"] > 0
    assert all(goal["met"] is not None for goal in ready["goals"])
    processes = results["details"]["PSS without pods"]
    assert set(processes[GO]) == {"kubelet"}
    assert {"kubelet", "podsync", "status", "server"} <= set(processes[BULKHEAD])
    assert "| create → Ready" in (place / "results.md").read_text()
    assert "| create → Ready" in done.stdout
    assert "round 1/1 bulkhead: pods …" in done.stdout
    charts = {path.name for path in place.glob("*.svg")}
    assert charts == {"ratios.svg", "floor.svg", "memory.svg", "pods.svg"}
    for chart in charts:
        ET.parse(place / chart)
