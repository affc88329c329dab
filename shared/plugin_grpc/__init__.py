"""gRPC to plugins on this node: the messages of plugin registration and of CSI, and calls over a Unix socket.

`*_pb2.py` and `*_pb2.pyi` are generated from the `.proto` file of the same name by `make proto`.
"""
