"""The ConfigMap that a Node names as its configuration, at one version (config.md 4.2). Pure."""

from typing import Any

from msgspec import Struct


class ConfigSource(Struct, frozen=True, kw_only=True):
    """One version of a ConfigMap, and the key of its data that has the KubeletConfiguration."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    kubelet_config_key: str

    @property
    def api_path(self) -> str:
        """The path of the ConfigMap at the API server."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    def as_object(self) -> dict[str, Any]:
        """Return the NodeConfigSource of the API."""
        return {
            "configMap": {
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
                "resourceVersion": self.resource_version,
                "kubeletConfigKey": self.kubelet_config_key,
            }
        }
