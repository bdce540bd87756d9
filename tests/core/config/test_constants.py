"""Knobs that became constants: an old params.yaml that sets one is refused in one line."""

import pytest
from pydantic import ValidationError

from tasks.core.config.chat_api import Traffic
from tasks.core.config.section import Section
from tasks.core.config.text_games import WebShopConfig
from tasks.core.engines.chat_api.client import LONGEST_WAIT_S
from tasks.core.worlds.webshop.authoring import CHALLENGE_CATEGORY


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [(Traffic, "longest_wait_s", f"{LONGEST_WAIT_S:g}"), (WebShopConfig, "challenge_category", CHALLENGE_CATEGORY)],
)
def test_a_knob_that_became_a_constant_is_refused_with_its_value(section: type[Section], name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=f"`{name}` is always {value}; delete it"):
        section.model_validate({name: value})
