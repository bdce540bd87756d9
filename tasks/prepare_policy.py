"""Stage prepare_policy: pin the base model -> data/policy/; write the start of iteration 1 -> data/iterations/i000/."""

from pathlib import Path
from shutil import copytree

from tasks.core.config.dag import iteration_key
from tasks.core.config.stage_inputs import BasePolicyInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.chat_settings import load_chat_format, write_chat_settings
from tasks.core.policies.delivery_probe import untrained_probe, write_probe
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.policies.policy_weights import require_finite
from tasks.core.records.files import replacing
from tasks.core.seeding import derive_seed


def prepare_policy(context: StageContext[BasePolicyInputs]) -> None:
    """Write the base policy and the untrained checkpoint drawn from `seed`, with its record.

    The base policy is the model that `policy.source` names, or the result of its warm start. Raises ArtifactError for a
    base that is no causal language model with a usable chat template, and what `fetch_base_model` raises; then nothing
    is written.
    """
    config, layout = context.inputs.policy, context.layout
    with replacing(layout.base_policy) as folder:
        if config.warm_start is None:
            folder.mkdir()
            fetch_base_model(config, context.inputs.world, layout.root, folder)
        else:
            copytree(layout.warm_started_base, folder)
        write_chat_settings(folder, config.chat, context.inputs.world_date)
        chat = load_chat_format(folder)
        model = load_base_model(folder, config)
        require_finite(dict(model.named_parameters()), Path(config.source))
        seed = derive_seed(context.inputs.seed, "initial policy")
        with replacing(layout.policy(iteration_key(0))) as checkpoint:
            policy = trainable_policy(model, config, None, seed)
            save_policy(policy, checkpoint)
            write_probe(
                checkpoint, untrained_probe(policy, chat, model.config.get_text_config().vocab_size, config, checkpoint)
            )
