"""What one agent of a machine is for its commands and for systemd: its places, its lock file, its local API."""
