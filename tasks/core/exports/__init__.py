"""Trained models and recorded rollouts in the forms of other tools: folders as the Hugging Face hub has them."""
