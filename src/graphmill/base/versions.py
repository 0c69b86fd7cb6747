"""Which version of a package is installed."""

from importlib import metadata


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
