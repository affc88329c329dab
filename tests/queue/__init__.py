"""Runs test files in several processes, the longest first: `python -m tests.queue tests`; `make test` runs it.

planning.py decides what one process runs and in which order; worker.py runs one process and ends it when it hangs;
recorder.py is loaded by pytest in that process and sends each result at once; report.py prints and keeps results.
family.py, which each pytest loads, ends what a killed process has started.
"""
