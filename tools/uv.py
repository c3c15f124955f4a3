"""Run uv with the package indexes and the certificate of pip: `python tools/uv.py pip sync requirements.lock`.

uv does not read pip's configuration. This program runs `pip config list` (files and `PIP_*` variables) and passes the
settings to uv as variables. A variable that is already set is kept, even an empty one. Without a configuration of pip,
uv uses its own defaults.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: Setting of pip -> variable of uv, and the separator of several values; None: it has one value.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", None),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", None),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", None),
    "proxy": ("ALL_PROXY", None),
    "default-timeout": ("UV_HTTP_TIMEOUT", None),
    "timeout": ("UV_HTTP_TIMEOUT", None),
}
#: Sections of pip's configuration that apply to `pip install`; a later one overrides an earlier one.
SECTIONS = ("global", "install", ":env:")


def settings(listed: str) -> dict[str, str]:
    """Return the settings in the output of `pip config list`, one `section.name='value'` per line."""
    found = {}
    pairs = [line.partition("=") for line in listed.splitlines()]
    for section in SECTIONS:
        for key, _, value in pairs:
            if key.startswith(f"{section}."):
                found[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return found


def variables(pip: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make uv look where `pip`, its settings by name, looks."""
    made = {}
    for name, (variable, separator) in VARIABLES.items():
        if values := pip.get(name, "").split():
            made[variable] = " ".join(values) if separator is None else separator.join(values)
    if "UV_INDEX" in made:
        # Pip takes the best version of any index; uv by default asks the first one that knows the package.
        made["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return made


def main() -> None:
    """Replace this process by uv."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True, check=False
    )
    if listed.returncode:
        sys.exit(listed.returncode)  # pip has printed the error
    uv = Path(sys.executable).with_name("uv")
    os.execve(uv, [str(uv), *sys.argv[1:]], variables(settings(listed.stdout)) | os.environ)


if __name__ == "__main__":
    main()
