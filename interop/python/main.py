"""The Python SDK's part: runs the role that the context names and prints JSON lines."""

import asyncio
import json
import logging
import sys
import time

import cases
import processor
import rich


def say(**line):
    print(json.dumps(line), flush=True)


async def run_cases(context):
    for name in context["cases"]:
        started = time.monotonic()
        try:
            detail = await asyncio.wait_for(getattr(cases, name)(context), 60) or ""
            result = "pass"
        except cases.NotOffered as why:
            result, detail = "n/a", str(why)
        except Exception as error:  # whatever went wrong is the result
            result, detail = "fail", f"{type(error).__name__}: {error}"
            logging.exception(name)
        say(case=name, result=result, detail=detail, ms=int((time.monotonic() - started) * 1000))


async def main():
    with open(sys.argv[1]) as file:
        context = json.load(file)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("azure.core").setLevel(logging.WARNING)  # a line per blob request
    cases.say = processor.say = rich.say = say
    role = context["role"]
    if role == "cases":
        await run_cases(context)
    elif role in ("processor", "feeder"):
        await getattr(processor, role)(context)
    else:
        await getattr(rich, role)(context)


asyncio.run(main())
