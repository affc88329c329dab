"""`bulkhead`, with as much patience as a test has: a running process that does not answer within a second, for the
machine is busy, would be shown as one that does not answer."""

from services.cli.agent import local_agent
from services.cli.agent.local_agent import Agent
from services.cli.command import main
from tests.support.waits.deadline import WAIT_SECONDS

local_agent.TIMEOUT_SECONDS = WAIT_SECONDS
Agent.streams.__kwdefaults__ = {"timeout": WAIT_SECONDS}

if __name__ == "__main__":
    main()
