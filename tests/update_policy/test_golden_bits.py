"""One update of the embedded policy has the recorded bits."""

from collections.abc import Callable
from pathlib import Path

from tasks.core.learner.packing import Rollout
from tasks.core.records.files import digest
from tests.golden_bits import require_portable_bits, require_recorded_bits
from tests.update_policy.test_update_policy import make_params, prepare, run

SHIPPED = Path(__file__).parents[2] / "data" / "base_policies" / "pocket"


def test_an_update_has_the_recorded_bits(make_rollouts: Callable[..., list[Rollout]], tmp_path: Path) -> None:
    params = make_params(loss={"kl_coefficient": 0.01})
    layout = prepare(tmp_path, SHIPPED, params, {"i001": make_rollouts(24)})
    run(layout, params, "i001")
    weights = layout.policy("i001") / "adapter_model.safetensors"
    require_recorded_bits(Path(__file__).parent / "golden_bits.json", digest(weights))


def test_an_update_has_the_bits_that_processors_share() -> None:
    require_portable_bits(f"{__file__}::test_an_update_has_the_recorded_bits")
