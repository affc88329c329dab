"""How facts travel between the processes: numbered, replayable streams and small idempotent requests over ZeroMQ.

`ledger` (owner) and `replica` (follower) are the pure halves of the protocol; `messages` are the messages;
`publisher`, `subscriber`, `caller`, `answerer` and `client` are the only modules that touch a zmq socket; `memory` is
the same bus inside one process, for tests. PROTOCOL.md is the specification.
"""
