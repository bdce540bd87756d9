"""Hooks of mkdocs: fresh tables on the generated pages, links to files beside docs/, equations without JavaScript."""

import html
import os
import re
from pathlib import Path
from typing import Any

import commands  # the hook's folder is on sys.path while mkdocs loads it
import knobs
import metrics
import presets
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]+)?\)")
_INCLUDED = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "operations/security.md": ".github/SECURITY.md"}
"""Pages whose text stands where GitHub and other tools look for it."""
_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Make the tables of a generated page anew, and unlink what lies outside of docs/."""
    name = page.file.src_uri
    if name in _INCLUDED:
        text = (ROOT / _INCLUDED[name]).read_text(encoding="utf-8")
        markdown = re.sub(r"\]\((?!docs/|https?:|#)", "](../", text).replace("](docs/", "](")
    if name == "configuration.md":
        markdown = knobs.with_tables(markdown)
    if name.startswith("worlds/") or name == "engines.md":
        markdown = knobs.with_kind_tables(markdown)
    if name == commands.PAGE.name:
        markdown = commands.with_commands(markdown)
    if name == metrics.PAGE.name:
        markdown = metrics.with_tables(markdown)
    if name == presets.PAGE.name:
        markdown = presets.with_tables(markdown)
    return _LINK.sub(lambda link: _inside(link, name), markdown)


def _inside(link: re.Match[str], page: str) -> str:
    """Return a link as it stands, or its text alone where it leads to a file that the site does not have."""
    text, target, _ = link.groups()
    place = os.path.normpath(Path("docs") / Path(page).parent / target)
    if not (ROOT / place).exists():
        raise PluginError(f"docs/{page}: [{text}]({target}): there is no {place}")
    if place.startswith("docs/"):
        return link.group()
    bare = text.strip("`")
    return f'<code title="{place}">{bare}</code>' if bare in place else f"{text} (`{place}`)"


def on_page_content(content: str, **_: Any) -> str:
    """Turn each equation into MathML, which browsers show by themselves."""
    return _EQUATION.sub(_mathml, content)


def _mathml(equation: re.Match[str]) -> str:
    tag = equation.group(1)
    math = convert(html.unescape(equation.group(2)), display="block" if tag == "div" else "inline")
    return f'<{tag} class="equation">{math}</{tag}>'
