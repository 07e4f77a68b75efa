"""The pattern for free-form values says exactly: no leading `=`, no `${`, no `{{`."""

import itertools
import re

from perdure.resources.steps import LITERAL_PATTERN

# Python writes a named group with P, the API server's regular expressions and those of editors without.
PATTERN = re.compile(LITERAL_PATTERN.replace("(?<", "(?P<"))


def test_on_all_short_texts_of_the_characters_that_matter() -> None:
    for length in range(8):
        for letters in itertools.product("=${a", repeat=length):
            text = "".join(letters)
            literal = not text.startswith("=") and "${" not in text and "{{" not in text
            assert bool(PATTERN.fullmatch(text)) == literal, text


def test_texts_of_several_lines_and_other_alphabets_are_literal() -> None:
    for text in ("a\nb = c\n", "Größe: 5 €", "{ 'json': [1] }", "$5 {x}", "a=b", "100 %", "{$x}"):
        assert PATTERN.fullmatch(text), text
