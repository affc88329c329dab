"""Carries facts between the processes: numbered, replayable streams and small idempotent requests over ZeroMQ.

`ledger` (owner) and `replica` (follower) are the pure halves of the protocol; `messages` are the messages. Only
`sockets`, `caller` and `client` send to a zmq socket or receive from one, with the options of `context`; `process_bus`
connects them to the `endpoint`, as `tests.fakes.memory_bus` does within one process. PROTOCOL.md is the specification.
"""
