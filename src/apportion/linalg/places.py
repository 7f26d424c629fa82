"""Where arrays of released values lie while something is computed from them: with the processors, or on a torch device.

What is released may be worked on anywhere. A device rounds products of matrices in its own way, so the last bits of
what is made from releases differ from those of the processors, like the sums that are formed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Place:
    """The processors, or a torch device.

    Attributes:
        device: the device; None for the processors.

    Example:
        >>> PROCESSORS.functions.sqrt(PROCESSORS.placed(np.array([4.0])))
        array([2.])
    """

    device: str | None = None

    @property
    def functions(self) -> Any:
        """The library that computes with arrays here: NumPy, or torch, which names its functions alike."""
        if self.device is None:
            return np
        import torch

        return torch

    def placed(self, values: NDArray[Any]) -> Any:
        """Bring an array here."""
        return values if self.device is None else self.functions.tensor(values, device=self.device)

    def back(self, values: Any) -> NDArray[Any]:
        """Bring an array back to the processors."""
        return np.asarray(values if self.device is None else values.cpu().numpy())


PROCESSORS = Place()
