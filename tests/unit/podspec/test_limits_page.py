"""docs/limits.md has the numbers for pods that the code has."""

from pathlib import Path

import pytest

from services.podsync.adapters.images.pull_credentials import MAX_SECRETS
from services.podsync.adapters.pod import env_files
from services.podsync.core.cri import container_mounts
from services.podsync.core.images import docker_config, image_reference, pull_progress
from services.sources.controllers import trust_bundles
from services.volume.adapters import atomic_writer
from services.volume.core.files.payload import MAX_PAYLOAD_BYTES
from services.volume.core.operations.mount_shares import MAX_CALLS_PER_LOCAL_MOUNT, MAX_CALLS_PER_MOUNT
from shared.cri import content_store
from shared.podspec import support
from shared.podspec.exec_space import MAX_SPACE_BYTES, MAX_STRING_BYTES
from shared.podspec.references import MAX_REFERENCES

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_a_row_for_pods_is_what_the_code_has(subtests: pytest.Subtests) -> None:
    for what, limit in [
        ("containers of a pod, of all kinds", support.MAX_CONTAINERS),
        ("volumes of a pod", support.MAX_VOLUMES),
        ("Secrets and ConfigMaps that a pod names", MAX_REFERENCES),
        ("bytes of an argument, or of `NAME=value`", f"{MAX_STRING_BYTES} (the kernel's)"),
        ("bytes of environment, command and args together", f"{MAX_SPACE_BYTES >> 20} MiB (the kernel's, with"),
        ("environment files (fileKeyRef) of a container", env_files.MAX_FILES),
        (
            "bytes of such a file; of all of a container",
            f"{env_files.MAX_FILE_BYTES >> 20} MiB; {env_files.MAX_BYTES >> 20} MiB",
        ),
        ("bytes of an expanded subPathExpr", f"{container_mounts.MAX_PATH_BYTES} (the kernel's)"),
        ("bytes of the commands of all exec probes of a pod", f"{MAX_SPACE_BYTES >> 20} MiB"),
        ("characters of an image", image_reference.MAX_IMAGE_CHARACTERS),
        ("pull secrets of a pod; registries of a secret", f"{MAX_SECRETS}; {docker_config.MAX_REGISTRIES}"),
        (
            "bytes of the files of a secret, configMap, downwardAPI or projected volume",
            f"{MAX_PAYLOAD_BYTES >> 20} MiB",
        ),
        (
            f"replaced directories of such a volume, kept for {atomic_writer.KEPT_SECONDS:g} s; bytes of them",
            f"{atomic_writer.MAX_KEPT_DIRECTORIES}; {atomic_writer.MAX_KEPT_BYTES >> 20} MiB,",
        ),
        (
            "characters of the ClusterTrustBundles of one signer, for a projection that selects by signer",
            f"{trust_bundles.MAX_BUNDLES_CHARACTERS >> 20} MiB",
        ),
        (
            "checks of hostPaths below one mount at once; of a local file system, or `/`",
            f"{MAX_CALLS_PER_MOUNT}; {MAX_CALLS_PER_LOCAL_MOUNT}",
        ),
        (
            "subPaths of hostPaths below one mount at once; of a local file system, or `/`",
            f"{MAX_CALLS_PER_MOUNT}; {MAX_CALLS_PER_LOCAL_MOUNT}",
        ),
        ("bytes of a manifest", f"{pull_progress.MAX_MANIFEST_BYTES >> 20} MiB"),
        ("layers of an image", pull_progress._MAX_LAYERS),
        ("blobs of one repository", content_store._MAX_BLOBS),
    ]:
        with subtests.test(what):
            assert f"\n| {what} | {limit} " in PAGE.read_text()


def test_the_first_table_repeats_rows_of_the_others() -> None:
    first, _, others = PAGE.read_text().partition("\n## What does not work\n")
    rows = [line for line in first.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10 and not set(rows) - set(others.splitlines())
