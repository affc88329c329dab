"""The story of a pod as podsync writes it and `bulkhead explain` prints it: lines on disk, sentences, restarts.

No decision depends on a story: a line lost to a kill or a full disk is missing in the output of explain only.

A line is a JSON object: `at` (wall clock, seconds), `what` (one of `Kind`), `cause` (what it answers, "" = unknown) and
the fields of its kind. Fields and kinds a reader does not know are left out of the sentence, never an error.
"""
