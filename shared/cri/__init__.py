"""A thin async client of the Container Runtime Interface v1; with its fakes the only place that knows gRPC for it."""
