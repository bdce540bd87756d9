"""Code that runs in AppWorld's own interpreter: standard library, `appworld` and `..confinement.inside` only."""
