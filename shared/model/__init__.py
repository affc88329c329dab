"""Thin read-only views over raw Kubernetes JSON and over what the container runtime reports; pure."""
