"""Plays episodes on the package's own wrapper, in its interpreter: a JSON line of actions in, one of results out.

Only the wrapper's `valid` is left out (`--valid` leaves it in): a list that no agent sees, which takes three quarters
of a step and draws from the simulator's generator.
"""

import json
import sys

from scienceworld import ScienceWorldEnv

env = ScienceWorldEnv()
if "--valid" not in sys.argv:
    env.get_valid_action_object_combinations = list
for line in sys.stdin:
    episode = json.loads(line)
    env.envStepLimit = episode["limit"]
    env.load(episode["type"], episode["variation"], "", False)
    seen = [env.reset()[0]]
    scores, ends = [], []
    for action in episode["actions"]:
        text, _, done, info = env.step(action)
        seen.append(text)
        scores.append(info["score"])
        ends.append(done)
        if done:
            break
    print(json.dumps({"seen": seen, "scores": scores, "ends": ends}), flush=True)
