"""The version of this program: for the metric of the build, and exported again by `perdure`."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("perdure")
except PackageNotFoundError:  # from a source tree that is not installed
    VERSION = "0+source"
