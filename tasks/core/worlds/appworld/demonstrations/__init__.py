"""How an agent solves authored tasks, turn by turn in the real engine: well, and with the habits that RL breaks."""
