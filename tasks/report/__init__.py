"""The report of a run as an HTML page that needs no server: curves, scores, warnings, every rollout by turn."""
