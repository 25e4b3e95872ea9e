"""One rich event per language, read by all: what one SDK writes, every other understands."""

from .processes import Failed, Program

CASE = "reads_others"
MEANING = "Reads the rich events of all SDKs: ids, content type, properties of every type, every kind of body"

# What each program writes to the partition with its number. A program says which of the properties its SDK cannot write; numbers
# stay within what JavaScript holds exactly.
PROPERTIES = {
    "text": ["string", "na\u00efve \u2603 \U0001f3e0"],
    "empty": ["string", ""],
    "yes": ["bool", True],
    "no": ["bool", False],
    "int": ["int", -2_000_000_000],
    "long": ["long", 9_007_199_254_740_991],
    "small": ["long", 7],
    "double": ["double", 0.1],
    "float": ["float", 1.5],
    "when": ["timestamp", 1_700_000_000_123],
    "id": ["uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
    "bytes": ["binary", "00ff10"],
}
BODIES = {"data": "7b2261223a317d", "value": "a text as a value", "sequence": ["one", 2, "three"]}
LANGUAGES = ["python", "js", "rust", "java", "go", "java-legacy"]


def run_rich(languages, hub, folder):
    """All write, then all read; gives a result per language."""
    contexts = {language.name: {**language.context(hub), "properties": PROPERTIES, "bodies": BODIES} for language in languages}
    written, results = {}, {}
    for language in languages:
        try:
            partition = str(LANGUAGES.index(language.name))
            written[language.name] = one_line(language, {**contexts[language.name], "role": "write", "writer": language.name, "partition": partition},
                                              f"write-{language.name}", folder)
        except Failed as failure:
            results[language.name] = fail(f"cannot write: {failure}")
    expected = {str(LANGUAGES.index(name)): len(said["bodies"]) for name, said in written.items() if said["bodies"]}
    for language in languages:
        try:
            read = one_line(language, {**contexts[language.name], "role": "read", "expected": expected}, f"read-{language.name}", folder)
            problems = compare(written, read)
            results.setdefault(language.name, fail("; ".join(problems[:6])) if problems else passed(read.get("detail", "")))
        except Failed as failure:
            results.setdefault(language.name, fail(str(failure)))
    return results


def one_line(language, context, name, folder):
    """Runs a program that answers with one line."""
    program = Program(language.command(context["role"]), context, name, folder / language.name)
    try:
        line = program.next(60)
        if line is None or "error" in line:
            raise Failed(line["error"] if line else f"no answer; log: {program.log_path}")
        return line
    finally:
        program.finish(2)


def compare(written, read):
    """What a reader saw otherwise than it was written. `cannot` names what its SDK does not let it see."""
    problems = []
    cannot = set(read.get("cannot", []))
    for writer, said in written.items():
        events = {event["kind"]: event for event in read["events"].get(str(LANGUAGES.index(writer)), [])}
        for kind in said["bodies"]:
            event = events.get(kind)
            if event is None:
                problems.append(f"{writer}'s {kind} event is missing")
                continue
            expected = {
                "message_id": f"{writer}-{kind}", "correlation_id": "correlated", "content_type": "application/json",
                "properties": {name: value for name, (_, value) in PROPERTIES.items() if name not in said.get("without", [])},
                "body": BODIES[kind],
            }
            for absent in said.get("no", []):
                expected.pop(absent)
            for field, value in expected.items():
                if field in cannot or f"{kind} {field}" in cannot:
                    continue
                seen = event.get(field)
                if field == "properties":
                    for name, one in value.items():
                        if f"property {name}" not in cannot and (name not in seen or seen[name] != one):
                            problems.append(f"{writer}'s {kind} property {name}: {one!r} was read as {seen.get(name)!r}")
                elif seen != value:
                    problems.append(f"{writer}'s {kind} {field}: {value!r} was read as {seen!r}")
    return problems


def fail(detail):
    return {"case": CASE, "result": "fail", "detail": detail, "ms": 0}


def passed(detail):
    return {"case": CASE, "result": "pass", "detail": detail, "ms": 0}
