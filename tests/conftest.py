"""What the whole test session needs before anything else."""

# The compiler imports setuptools late; by then another test may have loaded the standard library's
# distutils, which setuptools refuses to find in its place.
import setuptools  # noqa: F401
