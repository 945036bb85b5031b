"""The principal of a client certificate: Kafka's `ssl.principal.mapping.rules`.

The subject in RFC 2253's order, `CN=alice,OU=sales,O=acme`, goes through the rules; the first whose
pattern matches all of it gives the name. `DEFAULT` is the subject itself.

    RULE:^CN=(.*?),.*$/$1/L, DEFAULT         alice

A rule is `RULE:pattern/replacement/` with `L` or `U` for lower or upper case. Patterns come from
the administrator and run on subjects that an authority of his choice has signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trilogue.broker.errors import InvalidRequest

DEFAULT = "DEFAULT"
SUBJECT_MAX = 4_096
_RULE = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\$(\d)")
SHORT_NAMES = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "emailAddress": "EMAILADDRESS",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED = re.compile(r'([,+"\\<>;])')


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> list[MappingRule]:
    """Parse `ssl.principal.mapping.rules`; InvalidRequest."""
    rules: list[MappingRule] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise InvalidRequest(f"no rule for the names of certificates: {text[position:][:80]!r}")
        position = found.end()
        if found[1] is None:
            rules.append(MappingRule())
            continue
        try:
            pattern = re.compile(found[1].replace("\\/", "/"))
        except re.error as error:
            raise InvalidRequest(f"the pattern {found[1][:80]!r}: {error}") from error
        rules.append(MappingRule(pattern, found[2].replace("\\/", "/"), found[3]))
    return rules or [MappingRule()]


def map_subject(subject: str, rules: Sequence[MappingRule]) -> str | None:
    """Return the name of a subject by the first rule that matches, or None."""
    for pattern, replacement, case in rules:
        if pattern is None:
            return subject
        found = pattern.fullmatch(subject)
        if found is None:
            continue
        groups = found

        def insert(mark: re.Match[str], groups: re.Match[str] = groups) -> str:
            number = int(mark[1])
            return (groups[number] or "") if number <= (groups.re.groups or 0) else ""

        name = _GROUP.sub(insert, replacement)
        return {"L": name.lower(), "U": name.upper()}.get(case, name)
    return None


def subject_of(certificate: Mapping[str, object]) -> str:
    """Return the subject of a certificate, as `getpeercert` has it, in RFC 2253's order."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    parts = [
        "+".join(f"{SHORT_NAMES.get(name, name)}={_escape(value)}" for name, value in relative)
        for relative in subject
    ]
    return ",".join(reversed(parts))[:SUBJECT_MAX]


def _escape(value: str) -> str:
    text = _ESCAPED.sub(r"\\\1", value)
    return f"\\{text}" if text[:1] in {"#", " "} else text
