"""The exceptions that jaxvec raises beside Python's own.

    JaxvecError
    ├── MissingExtraError      an optional library is not installed   (also an ImportError)
    ├── UnknownEnvError        no environment of that id              (also a KeyError)
    ├── FileFormatError        a file is not what it should be        (also a ValueError)
    └── CheckError             a public law does not hold             (also an AssertionError)

A static mistake in a call (shape, dtype, structure, option) is a plain `ValueError` or `TypeError`.
"""


class JaxvecError(Exception):
    """The root of the tree: `except JaxvecError` catches all that is jaxvec's own."""


class MissingExtraError(JaxvecError, ImportError):
    """A library that only one feature needs is not installed; the message names the extra."""


class UnknownEnvError(JaxvecError, KeyError):
    """No environment is registered under that id; the message lists the nearest ones."""

    def __str__(self) -> str:
        """Returns the message as it is: a KeyError would show its repr."""
        return str(self.args[0]) if self.args else ""


class FileFormatError(JaxvecError, ValueError):
    """A file is damaged, of another format, or does not fit the tree it is loaded into."""


class CheckError(JaxvecError, AssertionError):
    """A law of `jaxvec.testing` does not hold; the message says which, where and what was found."""
