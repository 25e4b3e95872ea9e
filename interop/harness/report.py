"""The results as a table: on the terminal, and as docs/compatibility.md, which later runs are held to."""

import re

from . import cases, processors, rich

MEANINGS = {**cases.CASES, rich.CASE: rich.MEANING, **processors.CASES}
OWN_MEANINGS = {**processors.OWN_CASES, **cases.OWN_CASES}
ALL_MEANINGS = {**MEANINGS, **OWN_MEANINGS}
INTRODUCTION = """\
# Compatibility

Written by `interop/run --write-docs` from a run of the official Azure Event Hubs SDKs, unchanged, against `partita serve`; `./test` runs
the same and fails if a case that passes here no longer does. How it works is in [interop](../interop/README.md).

Every SDK connects with the emulator's connection string, which `partita serve` prints. The one in Rust takes the port from
elsewhere: `.with_custom_endpoint("amqp://localhost:5672")` before `.open_with_connection_string(...)`. The legacy one in Java knows
TLS at port 5671 only, and no flag: `Endpoint=sb://localhost/;SharedAccessKeyName=...;SharedAccessKey=...;EntityPath=eh1` with
`partita serve --tls-self-signed` and the certificate authority in the JVM's trust store.

| SDK | package | version |
| --- | --- | --- |
"""
DETAIL_CHARS_MAX = 1200
WORDS = {"pass": "yes", "fail": "**no**", "n/a": "not offered"}


def document(versions, results):
    """The text of docs/compatibility.md. `results` is language -> case -> result."""
    lines = [INTRODUCTION.rstrip("\n")]
    for title, packages in versions.items():
        lines += [f"| {title} | {package} | {version} |" for package, version in packages.items()]
    titles = list(versions)
    lines += ["", "*Not offered*: the SDK has no such thing. A dash: not tried. The Rust SDK's processor is tried with an older version: its published blob",
              "checkpoint store does not build with the newest.", "",
              f"| case | {' | '.join(titles)} | what it shows |", "| --- |" + " :-: |" * len(titles) + " --- |"]
    for case, meaning in ALL_MEANINGS.items():
        absent = "-" if case in OWN_MEANINGS else "?"
        cells = [WORDS.get(results.get(title, {}).get(case, {}).get("result"), absent) for title in titles]
        lines.append(f"| `{case}` | {' | '.join(cells)} | {meaning} |")
    remarks = [f"- {title}, `{case}`: {results[title][case]['detail']}" for case in ALL_MEANINGS for title in titles
               if results.get(title, {}).get(case, {}).get("detail")]
    if remarks:
        lines += ["", "## Remarks", "", *remarks]
    return "\n".join(lines) + "\n"


def promised(text):
    """What a document says: language -> set of cases that pass, and the versions it names."""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    titles, passing, versions = [], {}, set()
    for row in table:
        if row[0] == "case":
            titles = row[1:-1]
            passing = {title: set() for title in titles}
        elif titles and (case := re.fullmatch(r"`(\w+)`", row[0])):
            for title, cell in zip(titles, row[1:]):
                if cell == WORDS["pass"]:
                    passing[title].add(case[1])
        elif not titles and len(row) == 3 and row[0] not in ("SDK", "---"):
            versions.add(tuple(row))
    return passing, versions


def broken_promises(text, versions, results, only_cases):
    """What the document says and this run does not bear out."""
    passing, documented = promised(text)
    problems = []
    for title, found in results.items():
        for package, version in versions[title].items():
            if (title, package, version) not in documented:
                problems.append(f"docs/compatibility.md does not name {title} {package} {version}: run interop/run --write-docs")
        for case in sorted(passing.get(title, ())):
            if case not in found and (only_cases or case not in ALL_MEANINGS):
                continue
            # What has failed is counted already.
            if found.get(case, {}).get("result") not in ("pass", "fail"):
                problems.append(f"docs/compatibility.md says that {title} passes {case}; it did not")
    return problems


def print_table(results):
    """The table for a terminal, then every failure with its reason."""
    titles = list(results)
    width = max(len(case) for case in ALL_MEANINGS)
    print("\n" + " " * width + "".join(f"  {title:>12}" for title in titles))
    for case in ALL_MEANINGS:
        found = [results[title].get(case) for title in titles]
        if any(found):
            cells = [f"{one['result']} {one['ms'] / 1000:.1f}s" if one and one["ms"] else one["result"] if one else "" for one in found]
            print(f"{case:<{width}}" + "".join(f"  {cell:>12}" for cell in cells))
    for title in titles:
        failures = {}
        for case, one in results[title].items():
            if one["result"] == "fail":
                failures.setdefault(one["detail"], []).append(case)
        for detail, found in failures.items():
            print(f"\n{title}, {', '.join(found)}: {detail[:DETAIL_CHARS_MAX]}")
