"""Array types, and how far one operation on floats rounds, named once."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

#: Largest relative rounding error of one operation on floats.
UNIT = float(np.finfo(np.float64).eps) / 2
