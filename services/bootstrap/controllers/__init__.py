"""What bootstrap keeps between events: startup, certificates, kubeconfig, systemd and the embedded containerd."""
