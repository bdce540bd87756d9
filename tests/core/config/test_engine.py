import pytest

from flows.params_file import params_of
from tasks.core.config.params import ParamsError

REFUSED = {
    "scripted": ("evaluation.top_k=5", r"evaluation\.top_k: the engine scripted recites and samples nothing"),
    "oracle": ("scoring.top_p=0.9", r"scoring\.top_p: the engine oracle recites and samples nothing; set it to 1\.0"),
    "vllm": ("evaluation.temperature=0.001", r"evaluation\.temperature: vLLM samples at 0\.01 or more, or greedily"),
    "chat_api": ("scoring.temperature=0.7", r"scoring\.temperature: .*send_temperature: false sends none, so 0\.7"),
}
"""For each engine that cannot do something with the sampling knobs, one that it would not follow."""
SILENT = ["iterations=0", "engine.chat_api.request.send_temperature=false", "evaluation.temperature=1.0"]


@pytest.mark.parametrize("engine", REFUSED)
def test_a_sampling_knob_that_the_engine_would_not_follow_is_refused_by_its_name(engine: str) -> None:
    knob, message = REFUSED[engine]
    others = [f"engine.name={engine}", *(SILENT if engine == "chat_api" else [])]
    params_of("default", [*others, *(["scoring.temperature=1.0"] if engine == "chat_api" else [])])
    with pytest.raises(ParamsError, match=message):
        params_of("default", [*others, knob])


def test_temperatures_of_training_are_looked_at_where_there_is_training() -> None:
    cold = ["engine.name=vllm", "collection.temperature=0.005"]
    with pytest.raises(ParamsError, match=r"collection\.temperature: vLLM samples at"):
        params_of("default", cold)
    params_of("default", [*cold, "iterations=0"])


def test_engines_that_sample_in_this_process_take_every_sampling_knob() -> None:
    params_of("default", ["evaluation.top_k=5", "scoring.top_p=0.5", "evaluation.temperature=0.001"])
