"""gRPC with programs of this node over Unix sockets: plugin registration and CSI, which the agent calls, and
PodResources and the Pods API, which it serves. The pods of the latter are encoded by `pod_encoding.py`.

`*_pb2.py` and `*_pb2.pyi` are generated from the `.proto` file of the same name by `make proto`.
"""
