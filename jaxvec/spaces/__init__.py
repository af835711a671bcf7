"""Spaces of many environments: batching, shared memory, and sampling under jit.

Nothing here imports jax before a function that computes on a device is called.
"""

from jaxvec.errors import MissingPartError
from jaxvec.spaces._batch import batch_differing_spaces, batch_space, create_empty_array, iterate
from jaxvec.spaces._block import SharedBlock
from jaxvec.spaces._concatenate import concatenate
from jaxvec.spaces._contains import contains
from jaxvec.spaces._convert import space_of_size, to_gymnasium_space
from jaxvec.spaces._sample import sample
from jaxvec.spaces._shared import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from jaxvec.spaces._values import write_row

__all__ = [
    "MissingPartError",
    "SharedBlock",
    "batch_differing_spaces",
    "batch_space",
    "concatenate",
    "contains",
    "create_empty_array",
    "create_shared_memory",
    "iterate",
    "read_from_shared_memory",
    "sample",
    "space_of_size",
    "to_gymnasium_space",
    "write_row",
    "write_to_shared_memory",
]
