"""Starts a containerd for an agent, asks whether it answers, and imports images. Knows no pods."""

import os
import socket
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

import grpc
from cri_api.v1 import api_pb2, api_pb2_grpc

from shared.config.effective import EmbeddedContainerd
from shared.errors import OperatorError
from tools.leftovers import end_processes, wait_until
from tools.oci_image import Image, archive, read_busybox

MAX_START_SECONDS = 60.0  # until it answers


def answers(address: str | Path) -> bool:
    """Return whether a containerd answers CRI calls on this socket now; it takes other calls a moment earlier."""
    if not Path(address).exists():
        return False
    with grpc.insecure_channel(f"unix://{address}") as channel:
        try:
            api_pb2_grpc.RuntimeServiceStub(channel).Version(api_pb2.VersionRequest(), timeout=2.0)
        except grpc.RpcError:
            return False
    return True


def start(embedded: EmbeddedContainerd, log: Path, programs: str = "") -> "subprocess.Popen[bytes]":
    """Start containerd as configured, and wait until it answers. `programs`: a directory in which it looks for its shim
    before PATH. Raises OperatorError when it does not answer."""
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"} if programs else None
    with log.open("ab") as output:
        command = [embedded.path, "--config", embedded.config_file]
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment)
    ended_or_answers = wait_until(lambda: process.poll() is not None or answers(embedded.socket), MAX_START_SECONDS)
    if ended_or_answers and process.poll() is None:
        return process
    end_processes([process.pid])
    process.wait()
    raise OperatorError("containerd does not answer", where=embedded.socket, remedy=f"read {log}")


def find_ctr(address: str | Path) -> str:
    """Return the ctr beside the containerd that serves this socket, else the one on PATH. A ctr of another version
    fails."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(address))
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            beside = Path(f"/proc/{pid}/exe").readlink().with_name("ctr")
        except OSError:
            return "ctr"
    return str(beside) if beside.exists() else "ctr"


def import_images(address: str, directory: Path, images: Iterable[Image]) -> None:
    """Make the images from busybox in `directory`, and import them. Existing images are replaced."""
    busybox, applets = read_busybox()
    for image in images:
        file = directory / "image.tar"
        file.write_bytes(archive(image, busybox, applets))
        command = [find_ctr(address), "--address", address, "--namespace", "k8s.io", "images", "import", str(file)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        file.unlink()
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise OperatorError(f"{image.name} could not be imported: {last}", where=address)


def start_task(address: str | Path, container_id: str) -> None:
    """Start the task of a container that CRI has created, through containerd's own API, so that CRI does not know of
    the task."""
    command = [
        find_ctr(address),
        "--address",
        str(address),
        "--namespace",
        "k8s.io",
        "task",
        "start",
        "--detach",
        "--null-io",
    ]
    done = subprocess.run([*command, container_id], capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise OperatorError(f"no task for {container_id}: {done.stderr.strip()}", where=str(address))
