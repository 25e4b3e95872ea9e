"""The cases that a client program runs by itself, and what it may ask of the harness while it does."""

import time

from .processes import Failed, Program, tail

# Name and meaning, in the order of the table. A program reports each of these, or it has failed.
CASES = {
    "hub_properties": "Properties of a hub: name, time of creation, partitions",
    "partition_properties": "Properties of a partition, empty and filled",
    "send_single": "Events sent one by one",
    "send_batch": "A batch of events; a full one refuses more",
    "send_by_key": "A partition key leads to the partition that the service's hash names",
    "send_to_partition": "Events sent to a partition",
    "buffered_producer": "The SDK's buffering producer; its own hash of keys agrees with the hub's",
    "receive_earliest": "From the beginning",
    "receive_latest": "From the end: only what comes after",
    "receive_offset": "After, and from, an offset",
    "receive_sequence": "After, and from, a sequence number",
    "receive_time": "From a time",
    "content_round_trip": "Properties, ids, content type and body come back as sent; offset, sequence number, time and key with them",
    "last_enqueued_info": "Every event tells the partition's end",
    "epoch_eviction": "A higher owner level takes a partition over; a lower one is refused",
    "sixth_reader": "The sixth plain reader of a partition and group is refused",
    "unknown_hub": "A hub that does not exist",
    "bad_key": "A wrong key",
    "expired_token": "A valid token is taken, an expired one refused",
    "token_expires": "A token that expires while events flow ends them",
    "own_rules": "Rules of one's own: a key that may send does not receive, and the other way round",
    "event_too_large": "An event over the limit is refused, and the next is taken",
    "idempotent_producer": "Idempotent retries: events whose answer was lost are sent again, and are there once",
    "tls": "AMQP over TLS, with the hub's own certificate authority",
    "websocket": "AMQP over WebSocket",
    "hub_restart": "The hub stops, then crashes, in mid-stream: its clients go on, and nothing acknowledged is missing",
}
# Cases that only some SDKs are asked for: those that name them as their own.
OWN_CASES = {
    "host_in_memory": "Two EventProcessorHosts on the SDK's managers in memory share the partitions",
    "host_own_managers": "EventProcessorHosts on lease and checkpoint managers of a user's own: one stops in order, the next goes on behind it",
}
SECONDS_MAX = 240


def run_cases(language, hub, folder, only=None):
    """Runs the program of a language; gives a result per case: {"result", "detail", "ms"}."""
    names = [name for name in [*CASES, *language.own_cases] if not only or name in only]
    if not names:
        return {}
    context = {**language.context(hub), "role": "cases", "cases": names}
    program = Program(language.command("cases"), context, "cases", folder, env=hub.trust())
    results = {}
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while True:
            line = program.next(max(0.1, deadline - time.monotonic()))
            if line is None:
                break
            if "ask" in line:
                program.tell(answer(hub, line))
            elif line.get("case") in names:
                results[line["case"]] = line
                tell(language, line)
    except Failed as failure:
        why = str(failure)
    else:
        why = f"the program ended before this case; {tail(program.log_path)}"
    finally:
        program.finish(2)
    for name in names:
        results.setdefault(name, {"case": name, "result": "fail", "detail": why, "ms": 0})
    return results


def tell(language, result):
    """Prints a line about a case that is over."""
    print(f"  {language.title}: {result['case']} {result['result']}, {result['ms'] / 1000:.1f} s", flush=True)


def answer(hub, line):
    """Does what a program asks for."""
    if line["ask"] == "restart":
        hub.restart(line["how"])
        return {"restarted": line["how"]}
    if line["ask"] == "token":
        return {"connection_string": hub.with_token(line["hub"], line["valid_seconds"])}
    if line["ask"] == "fault":
        hub.fault(line["fault"])
        return {"fault": line["fault"]["kind"]}
    raise Failed(f"a program asked for {line['ask']!r}, which there is not")
