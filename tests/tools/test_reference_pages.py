"""The pages that follow from the models are those of today's models, and their schemas take the documented files."""

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
PAGES = runpy.run_path(str(ROOT / "tools" / "reference_pages.py"))["pages"]()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_that_of_the_models(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == PAGES[name], "run python tools/reference_pages.py"


def errors(schema: str, text: str) -> list[str]:
    validator = Draft202012Validator(json.loads(PAGES[f"schemas/{schema}.schema.json"]))
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/api/job-file.md"])
def test_the_schema_takes_the_job_files_of_the_docs(page: str) -> None:
    found = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    jobs = [text for text in found if "job_id:" in text]
    assert jobs
    for text in jobs:
        assert errors("job", text) == []


def test_the_schema_names_a_field_that_is_not_one() -> None:
    text = "job_id: one\ntraining: {clocks: 3, epochs: 2}\ntransient: {markets: [c4.large/us-east-1a]}\n"
    assert errors("job", text) == ["Additional properties are not allowed ('epochs' was unexpected)"]
