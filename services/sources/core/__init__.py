"""Pure decisions of sources: what manifests and API objects say, what to ask the API server next, what changed."""
