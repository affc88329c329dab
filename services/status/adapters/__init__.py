"""How status reaches the outside: the machine and its network. The API server is behind `shared.kube`."""
