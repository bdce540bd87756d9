"""The script for the peers' interpreter: `python train_on_folder.py PROJECTS_SITE_PACKAGES DATASET MODEL OUT`.

Reads both configs of an exported dataset and lets TRL's SFT and DPO trainers take a step each, on the folder as it is.
Prints one JSON line.
"""

import contextlib
import json
import sys

sys.path.append(sys.argv[1])  # after the peers' own packages

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

FOLDER, MODEL, OUT = sys.argv[2:]
COMMON = {
    "output_dir": OUT,
    "max_steps": 1,
    "per_device_train_batch_size": 2,
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "disable_tqdm": True,
}


def trained(kind, config, dataset):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    before = model.model.layers[0].mlp.up_proj.weight.detach().clone()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    trainer = kind(model=model, args=config, train_dataset=dataset, processing_class=tokenizer)
    loss = trainer.train().training_loss
    moved = float((trainer.model.model.layers[0].mlp.up_proj.weight.detach() - before).abs().max())
    first = next(iter(trainer.get_train_dataloader()))
    return {"loss": loss, "moved": moved, "text": tokenizer.decode(first["input_ids"][0])}


def main():
    rollouts, pairs = load_dataset(FOLDER, split="train"), load_dataset(FOLDER, "preferences", split="train")
    return {
        "rollouts": len(rollouts),
        "columns": rollouts.column_names,
        "first": rollouts[0],
        "pairs": len(pairs),
        "sft": trained(SFTTrainer, SFTConfig(**COMMON, max_length=512), rollouts),
        "dpo": trained(DPOTrainer, DPOConfig(**COMMON, max_length=512), pairs),
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = main()
    print(json.dumps(found))
