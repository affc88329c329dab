"""Measures the Go kubelet and Bulkhead in turn, on one control plane and one containerd, by the same client.

Measures from outside (the API server's watch, /proc, the kubelet's ports), never by an agent's own log.
`docs/benchmarks.md` describes how each figure is measured.
"""
