"""The configuration that a file and flags give, and the lines with which they are refused."""

from pathlib import Path

import pytest

from shared.config.effective import EffectiveConfig
from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
ALONE = HEAD + "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
EMBEDDED = (
    ALONE + "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\nembeddedContainerd:\n  enabled: true\n"
)


def resolve(tmp_path: Path, text: str, *flags: str) -> EffectiveConfig:
    file = tmp_path / "kubelet.yaml"
    file.write_text(text, encoding="utf-8")
    return evaluate([f"--config={file}", *flags]).config


def refusal(*arguments: str) -> list[str]:
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate(list(arguments))
    return list(refused.value.lines)


def file_refusal(tmp_path: Path, text: str, *flags: str) -> list[str]:
    file = tmp_path / "kubelet.yaml"
    file.write_text(text, encoding="utf-8")
    return [line.removeprefix(str(file)) for line in refusal(f"--config={file}", *flags)]
