"""`python -P -m services.server`: run server."""

from services.frame.launch import launch
from services.server.service import build

if __name__ == "__main__":
    launch("server", build)
