"""The version of what nodes, controllers and the control plane say to each other."""

#: Increases with each change of a message that an older program does not understand.
PROTOCOL = 5


def full_version(package: str) -> str:
    """Return the version of a program, as it is compared and shown: its package's, and the protocol."""
    return f"{package} (protocol {PROTOCOL})"


def version_misfit(who: str, theirs: str, we: str, ours: str) -> str:
    """Return in one line why `who` (of version `theirs`) and `we` cannot work together; empty if the versions agree.

    A program that says no version is of none that works with this one.
    """
    if theirs == ours:
        return ""
    return (
        f"{who} runs Proteus {theirs or 'of an unknown version'}, and {we} {ours}; "
        "install one version on both (a node's is that of the image PROTEUS_IMAGE_ID)"
    )
