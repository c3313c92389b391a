"""XML documents of texts that a run does not choose: names and errors may hold what XML cannot."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold, not even as a reference."""


def xml_text(text: str) -> str:
    """The text with a replacement for every character that XML cannot hold."""
    return _FORBIDDEN.sub("�", text)


def child(parent: ElementTree.Element, tag: str, text: str | None = None, /, **attributes: str) -> ElementTree.Element:
    """A new element within another, with text and attributes that XML can hold."""
    made = ElementTree.SubElement(parent, tag, {key: xml_text(value) for key, value in attributes.items()})
    if text is not None:
        made.text = xml_text(text)
    return made


def document(root: ElementTree.Element) -> str:
    """The document, indented, in UTF-8."""
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
