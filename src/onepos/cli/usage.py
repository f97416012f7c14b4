"""What is wrong with a command line, as one sentence: options that are not there, and values they do not take.

The library that parses the command line prints several lines, in which a check of its own may show ("Value error").
Its errors are told apart by the names of their types: which package they are in depends on its version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from onepos.reading import shorten

_CHOICE = re.compile(r"(?:Value error, )?'?(?P<given>.*?)'? is not one of (?P<known>.*?)\.?", re.DOTALL)
_LIMITS = {"greater than or equal to": "at least", "less than or equal to": "at most"}
_KINDS = (("integer", "a whole number"), ("number", "a number"), ("float", "a number"), ("boolean", "yes or no"))
_OLD_RANGE = re.compile(r"is not in the range (?P<range>.*?)\.?")


def is_usage(error: BaseException) -> bool:
    """Whether an error is about the command line itself."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def explain_usage(error: Any, arguments: Sequence[str]) -> str:
    """One sentence: what must hold, what was found, and where to look.

    Args:
        error: What the parser of the command line raised.
        arguments: The command line.
    """
    command = "onepos" if getattr(error, "ctx", None) is None else error.ctx.command_path
    kind = {each.__name__ for each in type(error).__mro__}
    help_ = f"See: {command} -h."
    if "MissingParameter" in kind:
        return f"{command} needs {_name(error)}, which is missing. {help_}"
    if "NoSuchOption" in kind:
        close = ", ".join(getattr(error, "possibilities", None) or ())
        advice = f"Did you mean {close}? {help_}" if close else help_
        return f"{command} has no option {shorten(error.option_name)}. {advice}"
    if "BadParameter" in kind:
        return _explain_value(error, arguments, help_)
    text = shorten(error.format_message()).rstrip(".")
    if match := re.fullmatch(r"No such command '(.*?)'.*", text):
        return f"{command} has no command {match[1]!r}. {help_}"
    if match := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text):
        return f"{command} takes no further argument; {match[1]!r} is one. {help_}"
    if match := re.fullmatch(r"Option '(.*?)' requires an argument", text):
        return f"{match[1]} needs a value, which is missing. {help_}"
    return f"{text[:1].lower()}{text[1:]}. {help_}"


def _explain_value(error: Any, arguments: Sequence[str], help_: str) -> str:
    """Of an option or argument with a value that it does not take."""
    name, message = _name(error), str(error.message)
    if match := _CHOICE.fullmatch(message):
        known = re.findall(r"'([^']*)'", match["known"])
        close = get_close_matches(match["given"].lower(), known, 1)
        advice = f"Did you mean {close[0]}?" if close else help_
        return f"{name} must be one of {', '.join(known)}; it is {shorten(match['given'])!r}. {advice}"
    given = _given(error, arguments)
    found = f"; it is {shorten(given)!r}" if given is not None else ""
    return f"{name} must be {_wanted(message)}{found}. {help_}"


def _wanted(message: str) -> str:
    """What a value must be, by the message about one that is not."""
    if match := re.search(r"should be (greater than|less than)( or equal to)? (\S+)", message):
        return f"{_LIMITS.get(match[1] + (match[2] or ''), match[1])} {match[3].rstrip('.')}"
    if match := _OLD_RANGE.search(message + "\n"):
        return f"in the range {match['range'].strip()}"
    return next((words for kind, words in _KINDS if kind in message), "a value of another kind")


def _name(error: Any) -> str:
    """The option as it is written, or the argument."""
    param = getattr(error, "param", None)
    options = [each for each in getattr(param, "opts", ()) if each.startswith("-")]
    if options:
        return str(max(options, key=len))
    return str(getattr(param, "metavar", None) or getattr(param, "human_readable_name", None) or "an argument")


def _given(error: Any, arguments: Sequence[str]) -> str | None:
    """The value of an option that was refused, as it was typed."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for place, word in enumerate(arguments):
        option, is_joined, value = word.partition("=")
        if option in names:
            return value if is_joined else next(iter(arguments[place + 1 : place + 2]), None)
    return None
