"""Array aliases and the names a user may pass as strings."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ArrayLike = npt.ArrayLike
AnyArray = npt.NDArray[Any]

MarginKind = Literal["probability", "quantile"]
RadiusKind = Literal["R1", "R1+", "R2"]
SimplexMap = Literal["hardmax", "softmax", "sparsemax"]
DiscreteMethod = Literal["exact", "bonferroni", "bonferroni_all", "top_class", "published"]
Combine = Literal["pairwise", "bonferroni", "margin_variable", "published"]
Limit = Literal["star", "betting", "sequence", "bernstein", "hoeffding"]
Decision = Literal["undecided", "certified", "hopeless", "precise"]
