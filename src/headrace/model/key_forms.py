"""Values of key columns in forms that are equal whenever a database may compare the values as equal, by column with Arrow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.collation import ASCII_EQUALS, fold_text

_CONTROLS = "[\\x00-\\x1f\\x7f]"


def folded(values: pa.Array, *, weighs_supplementary: bool = False) -> pa.Array:
    """Values in a form that is equal whenever any collation treats the values as equal. Floats become text, integers stay.

    ``weighs_supplementary``: see ``fold_text``. Python handles only texts with control or non-ASCII characters, each distinct text
    once.
    """
    if pa.types.is_floating(values.type):
        return without_minus_zero(values).cast(pa.string())
    if not is_text(values.type):
        return values
    plain = pc.ascii_rtrim(pc.ascii_lower(values), characters=" ")
    for sign, equal in ASCII_EQUALS:
        if pc.any(pc.match_substring(plain, sign)).as_py() is True:
            plain = pc.replace_substring(plain, sign, equal)
    if pc.any(pc.match_substring(plain, "ss")).as_py() is True:
        plain = pc.replace_substring_regex(plain, "ss+", "s")  # as in fold_text
    others = pc.fill_null(pc.or_(pc.invert(pc.string_is_ascii(values)), pc.match_substring_regex(values, _CONTROLS)), False)
    if not pc.any(others).as_py():
        return plain
    distinct = pc.dictionary_encode(values.filter(others))
    forms = [fold_text(text, weighs_supplementary=weighs_supplementary) for text in distinct.dictionary.to_pylist()]
    return pc.replace_with_mask(plain, others, pa.array(forms, plain.type).take(distinct.indices))


def hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of each value (integers, texts or bytes), the same in every process. That of NULL has no meaning."""
    from pandas.util import hash_array  # loading pandas takes longer than a command that hashes nothing

    if pa.types.is_integer(values.type):
        return np.asarray(hash_array(values.fill_null(0).to_numpy(zero_copy_only=False)), dtype=np.uint64)
    return np.asarray(hash_array(np.asarray(values.to_pylist(), dtype=object), categorize=False), dtype=np.uint64)


def is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def without_minus_zero(values: pa.Array) -> pa.Array:
    """The values with -0.0 as 0.0, because every database treats them as one key."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
