"""`python -P -m services.bootstrap`: run bootstrap."""

from functools import partial

from services.bootstrap.controllers.startup import BootstrapStartup
from services.bootstrap.service import build
from services.frame.launch import launch

if __name__ == "__main__":
    startup = BootstrapStartup()
    launch("bootstrap", partial(build, startup=startup), startup=startup)
