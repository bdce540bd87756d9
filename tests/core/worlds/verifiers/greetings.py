"""Starts zygotes of verifiers by the settings on the command line; run by test_refusals in their interpreter.

Prints one JSON line for each: its greeting. Each is a fork of this process, which has the imports behind it.
"""

import json
import os
import socket
import sys

from tasks.core.confinement.inside.frames import receive
from tasks.core.worlds.verifiers.inside.zygote import main

for settings in sys.argv[1:]:
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        main(theirs.detach(), json.loads(settings))
        os._exit(0)
    theirs.close()
    print(json.dumps(receive(ours.fileno())), flush=True)
    ours.close()
    os.wait()
