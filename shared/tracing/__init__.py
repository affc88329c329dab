"""OpenTelemetry spans of one process: what is measured, which trace it belongs to, and the export over OTLP (gRPC).

`context` and `span` are pure; `tracer` keeps the current span and the traces of pods; `otlp` alone imports the messages
of OpenTelemetry, and only a process whose configuration has `tracing` imports it.
"""
