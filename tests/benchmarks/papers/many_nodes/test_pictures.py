"""Pictures are drawn from what was measured, each where it is asked for."""

from pathlib import Path

from proteus_spot.benchmarks.papers.many_nodes.layouts import scalings, tierings, traditional
from proteus_spot.benchmarks.papers.many_nodes.measurement import Measured
from proteus_spot.benchmarks.papers.many_nodes.pictures import draw_elasticity, draw_scaling, draw_tiering
from proteus_spot.benchmarks.papers.many_nodes.scaling import _figure as scaling_figure
from proteus_spot.benchmarks.papers.many_nodes.tiering import _figure as tiering_figure

PNG = b"\x89PNG"


def test_the_three_pictures(tmp_path: Path) -> None:
    beside = Measured(traditional(16), [4.0, 4.2], 0.5, 0.3, 0.2, 8e6)
    found = [beside, *(Measured(layout, [5.0, 6.0], 0.5, 0.8, 0.2, 8e6) for layout in tierings(16))]
    draw_tiering([(one, beside) for one in found], tmp_path / "new" / "tiering.png")
    draw_elasticity([4.0, 4.0, 1.0, 4.0], {2: "12 join", 4: "12 are told to go"}, "nodes", tmp_path / "elasticity.png")
    scaled = [Measured(layout, [8.0 / layout.nodes], 0.5, 0.3, 0.2, 8e6) for layout in scalings()]
    draw_scaling(scaled, tmp_path / "scaling.png")
    for name in ("new/tiering.png", "elasticity.png", "scaling.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)


def test_figures_stand_beside_traditional_and_beside_the_ideal() -> None:
    beside = Measured(traditional(16), [4.0], 0.5, 0.3, 0.2, 8e6)
    stage_2 = tiering_figure(Measured(tierings(16, (12,))[0], [5.0], 0.5, 0.8, 0.2, 8e6), beside)
    assert (stage_2.ratio, stage_2.beside_is) == (1.25, "traditional, 16 nodes")
    assert "INVALID" in stage_2.note
    first = Measured(scalings()[0], [8.0], 0.5, 0.3, 0.2, 8e6)
    sixteen = scaling_figure(Measured(scalings()[2], [4.0], 0.5, 0.3, 0.2, 8e6), first, 64.0)
    assert (sixteen.beside, sixteen.ratio) == (2.0, 2.0)
    assert sixteen.note.startswith("2.0 x as fast as 4 nodes; kernels 4.27 s")
