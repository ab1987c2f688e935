"""What pydantic found wrong, in words for whoever sent or wrote the value."""

from __future__ import annotations

from pydantic_core import ErrorDetails

_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be an array",
    "literal_error": "must be {expected}",
    "missing": "is required",
    "model_type": "must be an object",
    "path_type": "must be a path",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
    "string_type": "must be a string",
    "string_unicode": "must be Unicode text, without lone surrogates",
    "too_long": "must have at most {max_length} items",
}


def explain(details: ErrorDetails) -> str:
    """What the value must be: the end of a sentence that begins with its name."""
    words = _WORDS.get(details["type"])
    if words is None:
        message = details["msg"].removeprefix("Value error, ")
        return message.replace("Input should be", "must be", 1)
    return words.format(**details.get("ctx", {}))
