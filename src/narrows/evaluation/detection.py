"""How well a score tells two kinds of things apart."""

import numpy as np

__all__ = ["area_under_curve"]


def area_under_curve(scores: np.ndarray, positive: np.ndarray) -> float:
    """How often a positive one has a higher score than a negative one; one half of the cases where they are equal.

    This is the area under the ROC curve.

    Args:
        scores: `[number]`.
        positive: bool `[number]`.

    Returns:
        From 0 to 1; one half, which is chance, where there is nothing to tell apart.

    Example:
        >>> area_under_curve(np.array([0.1, 0.4, 0.4]), np.array([False, True, False]))
        0.75
    """
    ours, others = scores[positive], np.sort(scores[~positive])
    if not len(ours) or not len(others):
        return 0.5
    below = np.searchsorted(others, ours, side="left") + np.searchsorted(others, ours, side="right")
    return float(below.mean() / (2 * len(others)))
