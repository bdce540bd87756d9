"""The `tasks` section of params.yaml."""

from pydantic import Field

from tasks.core.config.section import Section


class TaskFilterConfig(Section):
    """The tasks that stay. The paper drops difficulty 3 and draws difficulties 1 and 2 with equal probability."""

    max_difficulty: int = Field(2, ge=1, le=3)
    denylist: tuple[str, ...] = ()
    """Task ids that are known to be broken: neither trained nor, on dev, evaluated on. An unknown id is an error."""
    equal_difficulties: bool = True
    """Every difficulty level is drawn equally often; False: every task is."""
