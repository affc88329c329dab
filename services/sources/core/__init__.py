"""Pure decisions of sources: pods from manifests and API objects, the next request to the API server, changes."""
