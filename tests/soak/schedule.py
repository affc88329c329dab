"""How long a soak churns and how often it rests. Pure."""

from dataclasses import dataclass

STARTING, ENDING = 15.0, 5.0  # seconds that the cluster takes to start and to be taken down
RESTING = 8.0  # seconds a rest takes on a node that is well
COLLECTING = 62.0  # seconds more for a deep rest: the agent keeps sandbox, logs and record of a gone pod for a minute
DEEP_EVERY = 5  # rounds; the last one always
WARM_UP, SHORT_ROUND, LONG_ROUND = 25.0, 15.0, 150.0  # seconds of churn
ROUNDS_WANTED = 40


@dataclass(frozen=True)
class Schedule:
    """`rounds` after the warm-up, each of `seconds` of churn and then a rest."""

    minutes: float
    rounds: int
    seconds: float

    @property
    def round_seconds(self) -> float:
        """Seconds one round takes with its rest, on a node that is well."""
        return self.seconds + RESTING

    @property
    def last_start(self) -> float:
        """Seconds since the beginning after which no round is begun any more: rests took longer than planned."""
        return self.minutes * 60 - self.seconds - RESTING - COLLECTING - ENDING

    def is_deep(self, number: int) -> bool:
        """Whether the rest after this round waits until the agent has collected everything of the pods."""
        return number > 0 and (number % DEEP_EVERY == 0 or number == self.rounds)


def schedule_of(minutes: float) -> Schedule:
    """Short soaks have short rounds; a long one rests some forty times. At least one round."""
    total = minutes * 60
    seconds = min(max(total / ROUNDS_WANTED, SHORT_ROUND), LONG_ROUND)
    left = total - STARTING - WARM_UP - RESTING - COLLECTING - ENDING
    if (few := int(left / (seconds + RESTING))) <= DEEP_EVERY:  # the last rest is the only deep one
        return Schedule(minutes, max(few, 1), seconds)
    return Schedule(minutes, int(left / (seconds + RESTING + COLLECTING / DEEP_EVERY)), seconds)
