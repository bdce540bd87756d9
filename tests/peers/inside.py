"""The script for the peers' interpreter: `python inside.py PROJECTS_SITE_PACKAGES`, cases on stdin, answers on stdout.

Both are JSON. A case holds padded arrays [R, T] of R rollouts; `mask` is 1 for the policy's tokens, 0 for the world's
and padding. TRL's losses are methods of its trainers, run here on objects with only the attributes that they read.
"""

import contextlib
import json
import sys
from collections import defaultdict
from types import SimpleNamespace

sys.path.append(sys.argv[1])  # after the peers' own packages

import torch
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig

BETA = 0.3
VERL_AVERAGES = {"rollout": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
TRL_AVERAGES = {"rollout": "grpo", "token": "bnpo", "constant": "dr_grpo"}


def answers(case):
    tensors = {
        name: torch.tensor(values, dtype=torch.float64) for name, values in case.items() if isinstance(values, list)
    }
    found = {**advantages(tensors), **kl(tensors), **behaviour(tensors)}
    for name, loss in losses(case["constant"]).items():
        new = tensors["new"].clone().requires_grad_()
        value = loss(new, tensors)
        (gradient,) = torch.autograd.grad(value, new)
        found[name] = {"value": value.item(), "gradient": gradient.tolist()}
    return found


def advantages(case):
    mask, groups = case["mask"], case["groups"].numpy()
    last = (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)
    rewards = torch.zeros_like(mask)
    rewards[torch.arange(len(mask)), last] = case["returns"]
    gae, targets = core_algos.compute_gae_advantage_return(case["turn_rewards"], case["values"], mask, 0.97, 0.9)
    whole = SimpleNamespace(gamma=1.0)
    found = {
        "verl gae": gae,
        "verl gae targets": targets,
        "verl group_mean": core_algos.compute_grpo_outcome_advantage(
            rewards.clone(), mask, groups, norm_adv_by_std_in_grpo=False
        )[0],
        "verl group_mean by std": core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, groups, 1e-12)[0],
        "verl leave_one_out": core_algos.compute_rloo_outcome_advantage(rewards.clone(), mask, groups)[0],
        "verl normalise_over_batch": core_algos.compute_reinforce_plus_plus_outcome_advantage(
            rewards.clone(), mask, config=whole
        )[0],
    }
    return {name: values.tolist() for name, values in found.items()}


def kl(case):
    names = {"verl k1": "k1", "verl k3": "low_var_kl"}
    return {name: core_algos.kl_penalty(case["new"], case["reference"], kind).tolist() for name, kind in names.items()}


def behaviour(case):
    correct = rollout_corr_helper.compute_rollout_correction_weights
    log_ratios = case["old"] - case["reference"]
    return {
        f"verl rollout_is {unit}": correct(log_ratios, case["mask"], unit, 2.0)[0].tolist()
        for unit in ("token", "sequence")
    }


def losses(constant):
    found = {"trl dpo": trl_dpo}
    for average in VERL_AVERAGES:
        found[f"verl token {average}"] = verl_loss(core_algos.compute_policy_loss_vanilla, average, constant)
        found[f"trl token {average}"] = trl_loss("token", average, constant)
        found[f"trl gspo {average}"] = trl_loss("sequence", average, constant)
        found[f"verl gspo {average}"] = verl_loss(core_algos.compute_policy_loss_gspo, average, constant)
    found["verl gspo turns"] = verl_loss(core_algos.compute_policy_loss_gspo, "rollout", constant, "turn_advantages")
    found["trl kl k3"] = trl_loss("token", "rollout", constant, beta=BETA, corrected=False)
    found["trl kl unbiased"] = trl_loss("token", "rollout", constant, beta=BETA, corrected=True)
    return found


def verl_loss(function, average, constant, advantages="advantages"):
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=1e9,  # without the dual clip
        global_batch_info={"loss_scale_factor": constant},
    )
    mode = VERL_AVERAGES[average]

    def loss(new, case):
        return function(case["old"], new, case[advantages], case["mask"], loss_agg_mode=mode, config=config)[0]

    return loss


def trl_loss(level, average, constant, beta=0.0, corrected=False):
    def loss(new, case):
        trainer = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
            model=SimpleNamespace(training=False),
            accelerator=SimpleNamespace(reduce=lambda x, **_: x, gather=lambda x: x, num_processes=1),
            args=SimpleNamespace(use_bias_correction_kl=corrected, delta=None, steps_per_generation=1),
            _metrics={"eval": defaultdict(list)},
            aux_loss_enabled=False,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            importance_sampling_level=level,
            loss_type=TRL_AVERAGES[average],
            beta=beta,
            epsilon_low=0.2,
            epsilon_high=0.28,
            use_vllm=False,
            vllm_importance_sampling_correction=False,
            max_completion_length=constant,
            current_gradient_accumulation_steps=1,
            _entropy_bonus_enabled=False,
        )
        ids = torch.zeros_like(new, dtype=torch.long)
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": torch.ones_like(ids[:, :1]),
            "completion_ids": ids,
            "completion_mask": case["mask"],
            "advantages": case["advantages"][:, 0],
            "old_per_token_logps": case["old"],
            "ref_per_token_logps": case["reference"],
        }
        return GRPOTrainer._compute_loss(trainer, None, inputs)

    return loss


def trl_dpo(new, case):
    """Compute DPO's loss; the first half of the rollouts are better than the second."""
    mask = torch.cat([torch.zeros_like(case["mask"][:, :1]), case["mask"]], 1).long()
    zeros = torch.zeros_like(new)
    outputs = SimpleNamespace(
        log_probs=new * case["mask"], entropy=zeros, mean_logits=zeros, is_top1=zeros.bool(), aux_loss=None
    )
    better, worse = (case["reference"] * case["mask"]).sum(1).chunk(2)
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False),
        accelerator=SimpleNamespace(device="cpu", gather_for_metrics=lambda x: x, gather=lambda x: x),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        beta=BETA,
        use_weighting=False,
        _metrics={"eval": defaultdict(list)},
        _total_train_tokens=0,
    )
    inputs = {
        "input_ids": torch.zeros_like(mask),
        "attention_mask": torch.ones_like(mask),
        "completion_mask": mask,
        "ref_chosen_logps": better,
        "ref_rejected_logps": worse,
    }
    return DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, False)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = [answers(case) for case in json.load(sys.stdin)]
    print(json.dumps(found))
