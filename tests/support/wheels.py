"""Minimal wheels, written file by file; and a copy of the project to build."""

import io
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def source_copy(folder: Path) -> Path:
    """Copy what a build of the project needs, links as links: it writes next to its sources."""
    left_out = shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info", "__pycache__", "tests", "docs")
    shutil.copytree(ROOT, folder, ignore=left_out, symlinks=True)
    return folder


def write_wheel(
    directory: Path, files: Mapping[str, str | bytes], name: str = "mine", tag: str = "py3-none-any"
) -> Path:
    """Write `name`-1.0-`tag`.whl with `files` and its metadata; return where it is."""
    info = f"{name}-1.0.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in {**files, **metadata}.items():
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    path = directory / f"{name}-1.0-{tag}.whl"
    path.write_bytes(buffer.getvalue())
    return path
