"""An agent for the commands: services in processes of their own, which publish pods and run nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bus.manifest import new_manifest, prepare_run_dir, write_manifest
from bus.messages.streams import SERVICES
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective
from tests.support.agents.preloaded import Preloaded, run_preloaded

COMMAND = "tests.programs.patient_command"
PROGRAM = "tests.programs.seven_services"


class Stage:
    """A run directory with running services; podsync has a process of its own."""

    def __init__(self, directory: Path, pods: int, kubeconfig: str = "") -> None:
        self.run_dir, self.log_dir, self.pods = directory / "run", directory / "log", pods
        self.log_dir.mkdir()
        prepare_run_dir(self.run_dir)
        config = EffectiveConfig(
            node_name="here",
            root_dir=str(directory / "kubelet"),
            run_dir=str(self.run_dir),
            log_dir=str(self.log_dir),
            cert_dir=str(directory / "pki"),
            kubeconfig=kubeconfig,
        )
        (self.run_dir / CONFIG_NAME).write_bytes(encode_effective(config, ""))
        write_manifest(new_manifest(self.run_dir))
        self.processes: dict[str, Preloaded] = {}
        self.run("podsync")
        self.run(*(service for service in SERVICES if service != "podsync"))

    def run(self, *services: str) -> Preloaded:
        """Start these services in one process, and wait for their beats."""
        reader, writer = os.pipe()
        with os.fdopen(reader) as lines:
            try:
                process = Preloaded(PROGRAM, (str(self.run_dir), str(self.pods), *services), (0, writer, 2))
            finally:
                os.close(writer)
            assert lines.readline() == "started\n"
        self.processes[services[0]] = process
        return process

    def line(self, *words: str) -> list[str]:
        """Return the command line of `bulkhead` with this run directory, in an interpreter of its own."""
        return [sys.executable, "-m", "services.cli.command", *words, "--run-dir", str(self.run_dir)]

    def command(self, *words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `bulkhead` with this run directory."""
        return run_preloaded(
            COMMAND, [*words, "--run-dir", str(self.run_dir)], environment={**os.environ, **(environment or {})}
        )

    def stop(self) -> None:
        """End every process."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
