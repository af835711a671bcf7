"""Spaces of many environments: batching, shared memory, and sampling under jit."""

from jaxvec.spaces._sample import sample

__all__ = ["sample"]
