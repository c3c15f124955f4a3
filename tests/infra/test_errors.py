"""What a user reads is a line that can be read."""

from proteus_spot.infra.errors import InputError


def test_a_long_line_keeps_its_place_and_its_mend() -> None:
    line = str(InputError("p.csv: row 3: " + "x" * 100_000 + "; fix the row"))
    assert len(line) < 1500
    assert line.startswith("p.csv: row 3: xxx")
    assert line.endswith(" fix the row"), "a word that is cut may be the rest of a secret"
    assert str(InputError("p.csv: is empty; give another")) == "p.csv: is empty; give another"
