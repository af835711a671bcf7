"""The version, read by the build and by `jaxvec --version`."""

__version__ = "0.1.0"
