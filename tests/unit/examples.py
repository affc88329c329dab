"""How many examples hypothesis draws: `make test` all of them, `make quick` (its profile) a share of each test's."""

import hypothesis

QUICK = 4  # one in so many


def examples(number: int) -> int:
    """For `settings(max_examples=...)`: the number, or its share in the short lane."""
    return number // QUICK if hypothesis.settings.get_current_profile_name() == "quick" else number
