"""The errors that all three clients raise.

Each protocol adds its own in `kafka/errors.py`, `pulsar/errors.py` and `tubemq/errors.py`. A
program that catches `ClientError` catches every error that a client raises on purpose.
"""

from __future__ import annotations

import os
import re


class ClientError(Exception):
    """Any error that a client raises on purpose."""


class TimedOut(ClientError, TimeoutError):
    """Something did not happen within its time-out. Whether it happens later is not known."""


class ConnectionLost(ClientError):
    """A connection broke or could not be opened. A retry may succeed."""


class ServerUnreachable(ConnectionLost, TimedOut):
    """No server answered within the time-out. The message names the address and the next step."""


class Unsupported(ClientError):
    """The server serves no version of the request that the client knows."""


class InvalidOption(ClientError, ValueError):
    """An option has a value that is not allowed."""


class InvalidOptionType(ClientError, TypeError):
    """An option has a value of a wrong type, or there is no option of this name."""


class ServerRefused(ClientError):
    """The server answered with an error code of its protocol."""

    def __init__(
        self, code: int, name: str, about: str, *, retriable: bool, advice: str = ""
    ) -> None:
        super().__init__(f"{about}: {name} ({code})" + (f": {advice}" if advice else ""))
        self.code = code
        self.about = about
        self.retriable = retriable


def describe_unreachable(address: str, problem: object, *, within_s: float | None = None) -> str:
    """The message of a `ServerUnreachable`: the address, the cause, and what to do about it."""
    within = "" if within_s is None else f" within {within_s:g} s"
    return (
        f"no server answered at {address}{within} ({str(problem).removeprefix(f'{address}: ')}): "
        "check that the server is running and that the address is right"
    )


def describe_os_error(problem: OSError) -> str:
    """Return its cause in the words of the system, without its number and the address.

    asyncio joins the errors of several addresses of a name to one text: each cause comes once.
    """
    code = problem.errno
    if code is not None and code < 0:  # of the resolver
        return problem.strerror or str(problem)
    codes = [str(code)] if code else re.findall(r"\[Errno (\d+)\]", str(problem))
    return ", ".join(dict.fromkeys(os.strerror(int(each)) for each in codes)) or str(problem)
