"""The bands in which counts are expected to be: negative binomial counts, whose rate is itself uncertain."""

import math

#: Probability mass that may be left out at each end of a band.
_TAIL = 0.025


def count_band(mean: float, shape: float, tail: float = _TAIL) -> tuple[int, int]:
    """Return the least and the greatest count of the central band.

    Parameters
    ----------
    mean : expected count.
    shape : of the gamma distribution of the rate; the smaller it is the wider is the band. The counts' variance is
        ``mean + mean**2 / shape``.
    tail : probability left out at each end.

    Notes
    -----
    The count is negative binomial: a Poisson count whose rate is gamma distributed. P(n) follows from P(n - 1), so that
    nothing overflows.
    """
    if mean <= 0:
        return 0, 0
    odds = mean / (mean + shape)
    log_p = shape * math.log1p(-odds)
    below, count, least = math.exp(log_p), 0, None
    while below < 1 - tail and count < 10 * (mean + shape) + 1000:
        if least is None and below > tail:
            least = count
        log_p += math.log(odds * (count + shape) / (count + 1))
        count += 1
        below += math.exp(log_p)
    return (count if least is None else least), count


def shape_of(counts: list[int], means: list[float]) -> float:
    """Return the shape under which the counts vary about their means as they do, by the method of moments.

    Returns
    -------
    float
        1000 where they vary no more than Poisson counts.
    """
    excess = sum((count - mean) ** 2 - mean for count, mean in zip(counts, means, strict=True))
    squares = sum(mean**2 for mean in means)
    return min(squares / excess, 1000.0) if excess > 0 and squares > 0 else 1000.0
