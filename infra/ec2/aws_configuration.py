"""Where the user's AWS configuration comes from, in words for a message."""

import os

_NAMES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


def aws_configuration() -> str:
    """Return the variables that choose the configuration, with their values; without any, its file."""
    named = [f"{name}={os.environ[name]}" for name in _NAMES if os.environ.get(name)]
    return ", ".join(named) or "~/.aws/config (AWS_PROFILE is not set)"
