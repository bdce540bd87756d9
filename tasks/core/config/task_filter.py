"""The `tasks` section of params.yaml."""

from pydantic import Field

from tasks.core.config.section import Section


class TaskFilterConfig(Section):
    """The tasks that stay. The paper drops difficulty 3 and draws difficulties 1 and 2 with equal probability."""

    max_difficulty: int = Field(2, ge=1, le=3)
    """Hardest tasks that train."""
    denylist: tuple[str, ...] = ()
    """Ids of broken tasks. They are neither trained nor, on dev, evaluated on. An unknown id is an error."""
    equal_difficulties: bool = True
    """Draw every difficulty equally often. False: every task."""
