"""Pure functions over columns, for NumPy and JAX alike: the layers and the kernels under them."""
