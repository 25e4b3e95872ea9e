//! Lines become events.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{consume, consume_json, produce, refused, run, spawn};
use crate::support::{Hub, partita, text, wait_for};

/// Lines of all bytes and lengths, empty ones among them.
fn lines(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..count {
        let length = (n * 37) % 700;
        bytes.extend((0..length).map(|at| ((at * 31 + n) % 256) as u8).filter(|byte| *byte != b'\n'));
        bytes.push(b'\n');
    }
    bytes
}

#[test]
fn what_goes_in_comes_out_byte_by_byte() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    let input = lines(5_000);
    let said = produce(&hub, &["eh1", "--partition", "2"], &input);
    assert!(said.starts_with("Sent 5,000 events to partition 2 of eh1"), "{said}");
    assert!(said.contains("numbers 0 to 4999"), "{said}");
    assert!(consume(&hub, &["eh1"]) == input, "all of it, in order, and nothing else");
    assert_eq!(consume(&hub, &["eh1", "--partition", "1"]), b"");
}

#[test]
fn lines_go_round_and_stay_in_order_within_a_partition() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    let input: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    let file = hub.path("lines");
    std::fs::write(&file, input).unwrap();
    let said = produce(&hub, &["eh1", "--file", file.to_str().unwrap()], b"");
    for partition in 0..4 {
        assert!(said.contains(&format!("{partition}   5,000      0  4999")), "{said}");
        let id = partition.to_string();
        let printed = text(&consume(&hub, &["eh1", "--partition", &id]));
        let numbers: Vec<u32> = printed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 5_000);
        assert!(numbers.windows(2).all(|pair| pair[0] + 4 == pair[1]), "partition {partition}");
    }
}

#[test]
fn keys_and_properties_are_on_all_events() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    produce(&hub, &["eh1", "--key", "home-1", "--property", "a=b=c", "--property", "x="], b"one\ntwo\n");
    let events = consume_json(&hub, &["eh1"]);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["partition"], events[1]["partition"]);
    for (event, body) in events.iter().zip(["one", "two"]) {
        assert_eq!(event["key"], "home-1");
        assert_eq!(event["properties"], json!({"a": "b=c", "x": ""}));
        assert_eq!(event["body"], body);
    }
}

/// An event without what only its hub knows.
fn content(mut event: Value) -> Value {
    for name in ["sequence", "offset", "enqueued"] {
        assert!(event.as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    event
}

#[test]
fn events_are_piped_from_hub_to_hub_whole() {
    let hub = Hub::start(&["--memory", "--hub", "from:4", "--hub", "to:4", "--hub", "few:2"]);
    let input = [
        json!({"body": "text", "key": "k1", "properties": {"n": 5, "f": 1.5, "s": "x", "b": true}}),
        json!({"body": {"any": ["json"]}, "partition": 3, "properties": {"i": 7, "when": "2026-01-31T08:00:00Z"},
            "property_types": {"i": "int", "when": "timestamp"}}),
        json!({"body_base64": "AP8K", "partition": "3", "message": {"content_type": "a/b", "message_id": "m"}}),
        json!({"body_value": {"type": "map", "value": [["k", {"type": "ubyte", "value": 1}]]}, "partition": "0"}),
        json!({"body": "", "key": "k2"}),
    ];
    let input: String = input.iter().map(|line| format!("{line}\n")).collect();
    produce(&hub, &["from", "--jsonl"], input.as_bytes());
    let lines = consume(&hub, &["from", "-o", "jsonl"]);
    produce(&hub, &["to", "--jsonl"], &lines);
    let by_place = |hub_name: &str| {
        let mut events: Vec<Value> = consume_json(&hub, &[hub_name]);
        events.sort_by_key(|event| (event["partition"].to_string(), event["sequence"].as_i64()));
        events.into_iter().map(content).collect::<Vec<_>>()
    };
    let (from, to) = (by_place("from"), by_place("to"));
    assert_eq!(from.len(), 5);
    assert_eq!(from, to);

    // Partitions that are not there are an error, unless they are passed over.
    let (code, said) = refused_after_report(&hub, &["few", "--jsonl"], &lines);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is no partition 3: they are 0 to 1"), "{said}");
    produce(&hub, &["few", "--jsonl", "--spread"], &lines);
    assert!(consume_json(&hub, &["few"]).len() >= 5);
}

/// The error of a command that also says what it sent.
fn refused_after_report(hub: &Hub, args: &[&str], input: &[u8]) -> (i32, String) {
    let mut output = run(hub, &[&["produce", "--quiet"], args].concat(), input);
    output.stdout.clear();
    refused(&output)
}

#[test]
fn a_line_that_cannot_be_sent_is_named_and_those_before_it_are_sent() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let large = format!("small\n{}\nafter\n", "x".repeat(2 << 20));
    let key = format!("{{\"body\":1}}\n{{\"body\":2,\"key\":\"{}\"}}\n{{\"body\":3}}\n", "k".repeat(129));
    for (args, input, part, before) in [
        (&["eh1", "--jsonl"][..], "{\"body\":\"a\"}\n{\"boddy\":1}\n", "line 2: unknown field `boddy`", 1),
        (&["eh1", "--jsonl"], "hello\n", "line 1: it is not a JSON object", 0),
        (&["eh1", "--jsonl"], "{\"body\":1}\n\n{\"body\":2}\n[]\n", "line 4: ", 2),
        (&["eh1"], &large, "line 2: the event has 2097", 1),
        (&["eh1", "--jsonl"], &key, "line 2: the partition key has 129 characters", 1),
        (&["eh1", "--jsonl"], "[1]\n", "line 1: it is not a JSON object", 0),
    ] {
        let events = consume_json(&hub, &["eh1"]).len();
        let (code, said) = refused_after_report(&hub, args, input.as_bytes());
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(part), "no {part:?} in {said}");
        assert_eq!(consume_json(&hub, &["eh1"]).len() - events, before, "{part}");
    }
}

#[test]
fn count_limits_lines_and_repeats_a_text() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    produce(&hub, &["eh1", "--count", "2"], b"a\nb\nc\n");
    assert_eq!(consume(&hub, &["eh1"]), b"a\nb\n");
    produce(&hub, &["eh1", "--body", "event {n}", "--count", "3"], b"");
    produce(&hub, &["eh1", "--body", "once"], b"");
    assert_eq!(consume(&hub, &["eh1", "--from", "seq:2"]), b"event 0\nevent 1\nevent 2\nonce\n");
}

#[test]
fn a_rate_is_not_exceeded() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let began = Instant::now();
    produce(&hub, &["eh1", "--body", "x", "--count", "21", "--rate", "50"], b"");
    assert!(began.elapsed() >= Duration::from_millis(400), "20 pauses of 20 ms");
}

#[test]
fn a_line_is_sent_while_the_next_one_is_waited_for() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    let mut producer = spawn(&hub, &["produce", "eh1"]);
    let mut consumer = spawn(&hub, &["consume", "eh1"]);
    let mut typed = producer.stdin.take().unwrap();
    let mut shown = BufReader::new(consumer.stdout.take().unwrap()).lines();
    for line in ["first", "second"] {
        writeln!(typed, "{line}").unwrap();
        assert_eq!(shown.next().unwrap().unwrap(), line);
    }
    drop(typed);
    assert!(producer.wait().unwrap().success());
    consumer.kill().unwrap();
    consumer.wait().unwrap();
}

/// Kills the hub and starts it again where it was.
fn kill_and_start(mut hub: Hub) -> Hub {
    let port = hub.port("amqp_port").to_string();
    hub.signal(rustix::process::Signal::KILL);
    hub.wait();
    let dir = hub.leave();
    let mut command = partita(&["serve", "--port", &port, "--http-port", "0", "--tls-port", "0"]);
    command.arg("--data").arg(dir.path().join("data")).arg("--ready-file").arg(dir.path().join("ready.json"));
    Hub::run(command, dir)
}

#[test]
fn a_hub_that_is_killed_again_and_again_has_every_line_once_and_in_order() {
    const COUNT: usize = 60_000;
    let mut hub = Hub::start(&["--hub", "eh1:2"]);
    // The first kill finds events that are durable and not answered: whoever sends them again must not double them.
    hub.says(&["fault", "delay", "10m", "--role", "sender"]);
    let count = COUNT.to_string();
    let producer = spawn(&hub, &["produce", "eh1", "--body", "{n}", "--count", &count, "--rate", "20000"]);
    let mut there = 0;
    for _ in 0..3 {
        there = wait_for("more events", || {
            let now = consume(&hub, &["eh1"]).len();
            (now > there).then_some(now)
        });
        hub = kill_and_start(hub);
    }
    let output = producer.wait_with_output().unwrap();
    let said = text(&output.stderr);
    // Before it, why it had to wait.
    assert!(said.contains("trying again for up to a minute\n"), "{said}");
    assert!(output.status.success() && said.contains("\nSent 60,000 events to eh1"), "{said}");
    for partition in ["0", "1"] {
        let printed = text(&consume(&hub, &["eh1", "--partition", partition]));
        let numbers: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers.len(), COUNT / 2, "partition {partition}");
        assert!(numbers.windows(2).all(|pair| pair[0] + 2 == pair[1]), "partition {partition}");
    }
}

#[test]
fn whoever_does_not_wait_for_the_hub_is_told_what_is_in_doubt() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let mut producer = spawn(&hub, &["produce", "eh1"]);
    let mut typed = producer.stdin.take().unwrap();
    typed.write_all(b"sent\n").unwrap();
    wait_for("the first line", || (consume(&hub, &["eh1"]) == b"sent\n").then_some(()));
    // It is acknowledged before the next one is handed over.
    hub.says(&["fault", "delay", "10m", "--role", "sender"]);
    typed.write_all(b"in doubt\n").unwrap();
    wait_for("the second line", || (consume(&hub, &["eh1"]) == b"sent\nin doubt\n").then_some(()));
    interrupt(&producer);
    let output = producer.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("interrupted: 1 more event may have arrived or not"), "{said}");
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn a_count_is_enough_without_the_next_line() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let mut producer = spawn(&hub, &["produce", "eh1", "-n", "2"]);
    let mut typed = producer.stdin.take().unwrap();
    typed.write_all(b"a\nb\n").unwrap();
    let status = wait_for("the end", || producer.try_wait().unwrap());
    assert!(status.success());
    drop(typed);
    assert_eq!(consume(&hub, &["eh1"]), b"a\nb\n");
}

#[test]
fn an_interrupt_ends_the_reading_and_sends_what_was_read() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let mut producer = spawn(&hub, &["produce", "eh1"]);
    let mut typed = producer.stdin.take().unwrap();
    typed.write_all(b"sent\n").unwrap();
    let mut consumer = spawn(&hub, &["consume", "eh1", "-n", "1"]);
    assert!(consumer.wait().unwrap().success(), "it has arrived");
    interrupt(&producer);
    let output = producer.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "Sent 1 event to partition 0 of eh1, number 0.\n");
    assert!(output.status.success());
}

pub(crate) fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_line_may_begin_with_its_key() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    produce(&hub, &["eh1", "--key-separator", ":"], b"home-1:a:b\nhome-2:\n");
    produce(&hub, &["eh1", "--key-separator", "\\t"], b"home-1\tc\n");
    let mut events = consume_json(&hub, &["eh1"]);
    events.sort_by_key(|event| event["body"].as_str().unwrap().to_owned());
    let pairs: Vec<_> = events.iter().map(|event| (event["key"].as_str(), event["body"].as_str())).collect();
    let (one, two) = (Some("home-1"), Some("home-2"));
    assert_eq!(pairs, [(two, Some("")), (one, Some("a:b")), (one, Some("c"))]);
    assert_eq!(events[1]["partition"], events[2]["partition"], "a key is in one place");
    let (code, said) = refused_after_report(&hub, &["eh1", "--key-separator", ":"], b"k:x\nnone\n");
    assert!(code == 1 && said.contains("line 2: it has no ':' between key and body"), "{said}");
    for wrong in [&["--key-separator", "ab"][..], &["--key-separator", ":", "--key", "k"]] {
        assert_eq!(run(&hub, &[&["produce", "eh1"], wrong].concat(), b"").status.code(), Some(2));
    }
}
