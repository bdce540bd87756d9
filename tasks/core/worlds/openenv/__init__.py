"""Any server of the OpenEnv protocol as a world: the package's client plays; tasks and rules are in params.yaml."""
