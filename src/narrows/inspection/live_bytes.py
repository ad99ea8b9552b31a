"""How many bytes a computation holds at once, counted over tensors that have no memory of their own."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["LiveBytes"]


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, and the most of each phase.

    It is meant for torch's fake tensors (`FakeTensorMode`, to be entered before this mode), which have shapes and live
    as long as real ones do, but no values: the model's own code tells what it would hold, at no cost. Views share their
    storage, which is counted once. What an operation takes for itself and gives back is not seen.

    Args:
        number: what a computation gets that reads a number out of a tensor, as fake ones have none: the length of a
            row, which is the only such number that matters here. Questions (`mask.all()`) are answered by True.

    Example:
        >>> from torch._subclasses.fake_tensor import FakeTensorMode
        >>> with FakeTensorMode(), LiveBytes(number=0) as held:
        ...     total = (torch.zeros(100) + 1).sum()
        >>> held.live, held.peaks
        (4, {'': 800})
    """

    def __init__(self, number: int):
        super().__init__()
        self.live = 0
        self.peaks = {"": 0}
        self._number, self._phase = number, ""
        self._seen: dict[int, weakref.ref[Any]] = {}

    def enter(self, phase: str) -> None:
        """From now on the most is kept under this name."""
        self._phase = phase
        self.peaks[phase] = max(self.peaks.get(phase, 0), self.live)

    def watch(self, tensor: Tensor) -> None:
        """Count a tensor that was there before."""
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._seen:
            return

        def gone(_: Any) -> None:
            del self._seen[key]
            self.live -= size

        self._seen[key] = weakref.ref(storage, gone)
        self.live += size
        self.peaks[self._phase] = max(self.peaks[self._phase], self.live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return True if args[0].dtype == torch.bool else self._number
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.watch(leaf)
        return result
