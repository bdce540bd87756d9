"""The user's pip configuration, translated for uv: whoever can reach an index with pip can reach it here too."""

import os
import subprocess
import sys
from collections.abc import Mapping

_UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",  # HTTPS_PROXY takes precedence where it is set
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
_BARE = {"UV_FIND_LINKS": ","}  # uv separates this list by commas, the others by spaces


def uv_index_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return uv's variables for the settings of `pip config` and PIP_* variables; variables already set win."""
    settings = _pip_configuration() | _pip_variables(environment)
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # pip's own rule: the best version in any index
    for pip_name, value in settings.items():
        uv_name = _UV_NAMES.get(pip_name)
        if uv_name is not None:
            variables[uv_name] = _BARE.get(uv_name, " ").join(value.split())
    return {name: value for name, value in variables.items() if name not in environment}


def _pip_variables(environment: Mapping[str, str]) -> dict[str, str]:
    prefix = "PIP_"
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith(prefix)
    }


def _pip_configuration() -> dict[str, str]:
    """Return the options in pip's configuration files; empty if this interpreter has no pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    settings: dict[str, str] = {}
    for line in listing.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in ("global", "install"):
            settings[key] = value.strip("'").replace("\\n", " ")
    return settings
