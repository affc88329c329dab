"""The soak: random churn on a real node for minutes or hours, and then the question whether anything was left behind.

    python -m tests.soak --minutes 120 --seed 7

`plan`, `shapes`, `findings`, `trend`, `log_lines` are pure; `sampler` reads the machine, `churn` and `sessions` act,
and `run` puts them in order. What it measures and how to read a finding is in docs/soak.md.
"""
