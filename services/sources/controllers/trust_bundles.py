"""Reads ClusterTrustBundles by name or by signer, by a watch that begins with the first request (volumes.md 10.2)."""

import asyncio
import hashlib
import logging
from collections.abc import Iterable

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import ListedObjects
from services.sources.controllers.live_read import find_served
from services.sources.core.api_objects import metadata_text
from shared.kube import paths
from shared.model.fields import dictionary, text
from shared.model.objects import Object

log = logging.getLogger(__name__)

BUNDLE, OF_SIGNER = "ClusterTrustBundle", "ClusterTrustBundleList"
TRUST_KINDS = (BUNDLE, OF_SIGNER)
VERSIONS = ("v1", "v1beta1", "v1alpha1")  # of the API, in the order of preference
MAX_BUNDLES_CHARACTERS = 12 << 20  # of the bundles of one signer together; a message has at most 16 MiB
NOT_SYNCED = "ClusterTrustBundle informer has not yet synced"
ABSENT = "ClusterTrustBundle projection is not supported in static kubelet mode"  # the kubelet's text for a missing API


class TrustBundles:
    """Answers requests for bundles. Once one was requested, it publishes the versions of all bundles, and one for the
    bundles of each signer together, in `objects.changed`."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject]) -> None:
        self._api, self._changed = api, changed
        self._bundles: ListedObjects | None = None
        self._starting = asyncio.Lock()
        self._published: set[str] = set()  # keys

    async def get(self, request: GetObject) -> FoundObject:
        """Return a bundle, or a list of the bundles of the signer `request.name`, or why there is none."""
        async with self._starting:
            bundles = self._bundles if self._bundles is not None else await self._start()
        if isinstance(bundles, str):
            return FoundObject(object=None, error=bundles)
        if not await bundles.sync():
            return FoundObject(object=None, error=NOT_SYNCED)
        if request.kind == OF_SIGNER:
            return _bundles_of_signer(request.name, bundles.objects.values())
        return await bundles.get("clustertrustbundle.certificates.k8s.io", request.name)

    async def close(self) -> None:
        """Stop the watch."""
        if self._bundles is not None:
            await self._bundles.close()

    async def _start(self) -> ListedObjects | str:
        """Return the watch in the newest version that the API server has; a text = why there is none."""
        found = await find_served(self._api, paths.cluster_trust_bundles, VERSIONS)
        if isinstance(found, str):
            self._bundles = ListedObjects(self._api, "cluster trust bundles", found, on_change=self._publish)
            return self._bundles
        if not found.not_found:
            return f"failed to ensure informer manager for ClusterTrustBundles: {found.error}"
        log.info("the API server has no version of the ClusterTrustBundle API")
        return ABSENT

    def _publish(self) -> None:
        assert self._bundles is not None
        signers: dict[str, list[Object]] = {}
        versions = {}
        for bundle in self._bundles.objects.values():
            signers.setdefault(_signer(bundle), []).append(bundle)
            versions[f"{BUNDLE}//{metadata_text(bundle, 'name')}"] = metadata_text(bundle, "resourceVersion")
        versions |= {f"{OF_SIGNER}//{signer}": _version(bundles) for signer, bundles in signers.items()}
        for key in self._published | versions.keys():
            version = versions.get(key) or (_version(()) if key.startswith(f"{OF_SIGNER}/") else "")
            self._changed.put(key, ChangedObject(resource_version=version), "watched")
        self._published |= versions.keys()


def _bundles_of_signer(signer: str, bundles: Iterable[Object]) -> FoundObject:
    found = [bundle for bundle in bundles if _signer(bundle) == signer]
    size = sum(len(str((bundle.get("spec") or {}).get("trustBundle") or "")) for bundle in found)
    if size > MAX_BUNDLES_CHARACTERS:
        limit = f"at most {MAX_BUNDLES_CHARACTERS} are read"
        error = f"the ClusterTrustBundles of signer {signer} have {size} characters, {limit}"
        return FoundObject(object=None, error=error)
    return FoundObject(object={"metadata": {"resourceVersion": _version(found)}, "items": found})


def _signer(bundle: Object) -> str:
    return text(dictionary(bundle.get("spec")).get("signerName"))


def _version(bundles: Iterable[Object]) -> str:
    """Return one version for several bundles; it changes whenever one of them changes, is new or is gone."""
    versions = sorted(f"{metadata_text(found, 'name')}={metadata_text(found, 'resourceVersion')}" for found in bundles)
    return hashlib.sha256("\n".join(versions).encode("utf-8", "replace")).hexdigest()[:32]
