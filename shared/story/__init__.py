"""The story of a pod as podsync writes it and `bulkhead explain` prints it: lines on disk, sentences, restarts.

A story is told, never believed: nobody decides from it, and a line lost to a kill or a full disk costs only the
telling.

A line is a JSON object: `at` (wall clock, seconds), `what` (one of `Kind`), `cause` (what it answers, "" = unknown) and
the fields of its kind. Fields and kinds a reader does not know are left out of the sentence, never an error.
"""
