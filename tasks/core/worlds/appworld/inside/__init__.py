"""What runs in AppWorld's own interpreter: standard library and `appworld` only, nothing of `tasks`."""
