"""Keeps the state of bootstrap between events: startup, certificates, kubeconfig, systemd and the embedded
containerd."""
