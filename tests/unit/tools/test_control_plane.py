"""tools/control-plane: the folder with the binaries, found or refused without building anything."""

import os
import subprocess
from pathlib import Path

_TOOL = Path(__file__).resolve().parents[3] / "tools/control-plane"


def _run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
    return subprocess.run([_TOOL, *args], env={**kept, **environment}, capture_output=True, text=True, check=False)


def test_the_folder_that_is_named_is_taken() -> None:
    assert _run(KUBEBUILDER_ASSETS="/some/where").stdout == "/some/where\n"


def test_a_complete_cache_is_taken_and_an_incomplete_one_is_not(tmp_path: Path) -> None:
    cache = tmp_path / "kube-assets/1.20.2"
    cache.mkdir(parents=True)
    for program in ("etcd", "kubectl", "kube-apiserver", "kube-controller-manager"):
        (cache / program).touch(0o755)
    done = _run("--existing", XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    (cache / "kubelet").touch(0o755)
    assert _run("--existing", XDG_CACHE_HOME=str(tmp_path)).stdout == f"{cache}\n"


def test_a_machine_without_apt_gets_the_remedy(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", _TOOL], env={"PATH": "", "HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "needs apt-get" in done.stderr and "set KUBEBUILDER_ASSETS" in done.stderr
