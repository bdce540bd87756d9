"""How an agent solves tickets: well, by looking before it acts, and with the habits that RL breaks."""
