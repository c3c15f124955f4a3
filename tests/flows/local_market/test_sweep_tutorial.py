"""The tutorial of sweeps, typed as it stands."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from proteus_spot import load_state

PAGE = Path(__file__).parents[3] / "docs" / "sweeps.md"

pytestmark = pytest.mark.slow


def test_the_tutorial_can_be_typed(tmp_path: Path) -> None:
    tutorial, _, _ = PAGE.read_text().partition("## Writing a trial")
    for text in re.findall(r"^```python\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    (described,) = re.findall(r"^```yaml\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)
    (tmp_path / "sweep.yaml").write_text(described)
    (commands,) = re.findall(r"^```sh\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    assert [line.split()[0] for line in commands.splitlines()] == ["python", "python", "proteus"]
    for line in commands.splitlines():
        ended = subprocess.run(
            shlex.split(line), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["sweep_id"], result["state"]) == ("digits", "finished")
    assert sorted((trial["state"], trial["steps"]) for trial in result["trials"]) == [
        ("finished", 20),
        *3 * [("stopped_early", 14)],
    ]
    best = load_state(tmp_path / "runs" / "digits" / "best")
    assert best.alpha == result["best"]["params"]["alpha"]
    assert best.coef_.shape == (10, 64)
