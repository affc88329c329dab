"""Does the I/O of status: reads the machine and its network. The API server is behind `shared.kube`."""
