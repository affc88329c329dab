"""Keeps the state of sources between events: reads of the API server and of manifests, and the pods they give."""
