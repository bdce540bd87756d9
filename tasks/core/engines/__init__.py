"""Engines: token ids in, token ids and log-probs out. `interface` is the contract; each module is one engine."""
