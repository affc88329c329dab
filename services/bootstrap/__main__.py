"""`python -P -m services.bootstrap`: run bootstrap."""

from functools import partial

from services.bootstrap.front_door import BootstrapDoor
from services.bootstrap.service import build
from services.frame.launch import launch

if __name__ == "__main__":
    door = BootstrapDoor()
    launch("bootstrap", partial(build, door=door), front_door=door)
