"""The reference's pages for C and C++, from Doxygen's XML of the public headers, as Markdown; and which of what they
declare has no description."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

SETTINGS = """
INPUT = {inputs}
INPUT_FILTER = "{python} {here}/as_doxygen.py"
OUTPUT_DIRECTORY = {output}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
EXTRACT_PRIVATE = NO
MARKDOWN_SUPPORT = NO
AUTOLINK_SUPPORT = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
ENABLE_PREPROCESSING = YES
PREDEFINED = FLASHTILE_API= __cplusplus
QUIET = YES
WARNINGS = NO
"""
KINDS = {"function": "Functions", "enum": "Enumerations", "typedef": "Types", "define": "Constants and initialisers",
         "variable": "Constants"}


@dataclass
class Entry:
    name: str
    kind: str
    declaration: str
    text: str
    rows: list[tuple[str, str]]  # of a struct or an enumeration: each member and what it means


def run_doxygen(python: str, headers: list[Path], output: Path) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS.format(inputs=" ".join(map(str, headers)), here=Path(__file__).parent, python=python, output=output)
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True)
    return output / "xml"


def words(node: ElementTree.Element | None) -> str:
    return "" if node is None else " ".join("".join(node.itertext()).split())


def description(node: ElementTree.Element) -> str:
    """A paragraph each."""
    texts = []
    for part in ("briefdescription", "detaileddescription"):
        found = node.find(part)
        for paragraph in found.iter("para") if found is not None else ():
            texts.append(words(paragraph))
    return "\n\n".join(text for text in texts if text)


def entry(member: ElementTree.Element) -> Entry:
    kind = member.get("kind")
    name = words(member.find("name"))
    declaration = (words(member.find("definition")) + words(member.find("argsstring"))).replace("flashtile::v0::", "")
    rows = [(words(value.find("name")) + " " + words(value.find("initializer")), description(value))
            for value in member.findall("enumvalue")]
    if kind == "define":
        declaration = f"#define {name} " + words(member.find("initializer"))
    return Entry(name, kind, declaration, description(member), rows)


def entries_of(xml: Path, compound: str) -> list[Entry]:
    root = ElementTree.parse(xml / f"{compound}.xml").getroot().find("compounddef")
    members = [entry(member) for member in root.iter("memberdef")]
    for inner in root.findall("innerclass"):
        definition = ElementTree.parse(xml / (inner.get("refid") + ".xml")).getroot().find("compounddef")
        fields = [(f"{words(m.find('type'))} {words(m.find('name'))}{words(m.find('argsstring'))}", description(m))
                  for m in definition.iter("memberdef") if m.get("prot") == "public"]
        name = words(definition.find("compoundname")).split("::")[-1]
        members.append(Entry(name, "struct", f"{definition.get('kind')} {name}", description(definition), fields))
    return members


def escaped(text: str) -> str:
    for mark in "|*_<":
        text = text.replace(mark, "\\" + mark)
    return text


def markdown(entries: list[Entry], examples: dict[str, str], language: str) -> str:
    """`examples`: of functions by their names; each comes behind the last of a name's overloads."""
    parts = []
    for kind, title in {"function": KINDS["function"], "struct": "Structs and classes", **KINDS}.items():
        of_kind = sorted((e for e in entries if e.kind == kind), key=lambda e: e.name)
        if not of_kind:
            continue
        parts.append(f"## {title}\n")
        seen = set()
        for at, each in enumerate(of_kind):
            if each.name not in seen:  # overloads share a heading
                parts.append(f"### {each.name}\n")
            seen.add(each.name)
            parts.append(f"```cpp\n{each.declaration}\n```\n\n{escaped(each.text)}\n")
            if each.rows:
                parts.append("| member | meaning |\n|---|---|")
                parts.extend(f"| `{name.strip().replace('|', chr(92) + '|')}` | {escaped(' '.join(text.split()))} |"
                             for name, text in each.rows)
                parts.append("")
            last = each.name not in [later.name for later in of_kind[at + 1:]]
            if each.kind == "function" and last and each.name in examples:
                parts.append(f"```{language}\n{examples[each.name]}\n```\n")
    return "\n".join(parts)


def without_example(entries: list[Entry], examples: dict[str, str]) -> list[str]:
    """Functions."""
    return sorted({e.name for e in entries if e.kind == "function" and e.name not in examples})


def without_description(entries: list[Entry]) -> list[str]:
    """Functions, structs, classes and enumerations; of overloads one may speak for all."""
    described = {e.name for e in entries if e.text}
    kinds = ("function", "struct", "enum")
    return sorted({e.name for e in entries if e.kind in kinds and e.name not in described})
