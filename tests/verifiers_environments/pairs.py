"""An environment with two roles."""

import verifiers.v1 as vf
from sums import SumTaskset


class PairConfig(vf.EnvConfig):
    asker: vf.AgentConfig = vf.AgentConfig()
    solver: vf.AgentConfig = vf.AgentConfig()


class PairEnv(vf.Env[PairConfig]):
    async def run(self, task, agents) -> None:
        await agents.solver.run(task)


__all__ = ["PairEnv", "SumTaskset"]
