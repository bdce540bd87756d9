"""Environments of the package `verifiers`: its tasksets, tools, users and rubrics, played by a policy of ours."""
