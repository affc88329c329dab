"""The kubelet configuration of this machine: found, checked, shown and compared (`bulkhead config`)."""
