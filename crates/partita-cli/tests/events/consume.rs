//! Events become lines.

use std::io::{BufRead, BufReader};

use crate::client::{consume, consume_json, produce, refused, run, spawn};
use crate::produce::interrupt;
use crate::support::{Hub, partita, text, wait_for};

fn bodies(hub: &Hub, from: &str) -> String {
    text(&consume(hub, &["eh1", "--from", from])).replace('\n', " ").trim().to_owned()
}

#[test]
fn every_word_for_a_position_is_understood() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    produce(&hub, &["eh1"], b"0\n1\n2\n3\n4\n");
    let events = consume_json(&hub, &["eh1"]);
    let time = events[4]["enqueued"].as_str().unwrap().to_owned();
    wait_for("the clock", || (partita_now() > time).then_some(()));
    produce(&hub, &["eh1"], b"5\n6\n");
    let later = consume_json(&hub, &["eh1", "--from", "seq:5"])[0]["enqueued"].as_str().unwrap().to_owned();
    let offset = events[3]["offset"].as_str().unwrap();
    for (from, expected) in [
        ("earliest", "0 1 2 3 4 5 6"),
        ("latest", ""),
        ("seq:4", "4 5 6"),
        ("after seq:4", "5 6"),
        (&format!("offset:{offset}"), "3 4 5 6"),
        (&format!("after offset:{offset}"), "4 5 6"),
        ("1h-ago", "0 1 2 3 4 5 6"),
        (&later, "5 6"),
        ("2099-01-31T08:00:00Z", ""),
        ("seq:7", ""),
    ] {
        assert_eq!(bodies(&hub, from), expected, "{from}");
    }
    let output = run(&hub, &["consume", "eh1", "--from", "yesterday"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("invalid position 'yesterday': use earliest, latest"));
}

/// Now, as the hub writes it.
fn partita_now() -> String {
    partita_core::model::Timestamp::now().to_string()
}

#[test]
fn latest_means_what_comes_from_now_on() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    produce(&hub, &["eh1"], b"before\nbefore\n");
    let mut consumer = spawn(&hub, &["consume", "eh1", "--from", "latest"]);
    let shown = BufReader::new(consumer.stdout.take().unwrap());
    // Until it has attached, what is sent is before.
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let line = std::thread::scope(|scope| {
        let seen = sent.clone();
        let reader = scope.spawn(move || {
            let line = shown.lines().next().unwrap().unwrap();
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
            line
        });
        while !sent.load(std::sync::atomic::Ordering::Relaxed) {
            produce(&hub, &["eh1", "--quiet"], b"after\n");
        }
        reader.join().unwrap()
    });
    assert_eq!(line, "after");
    consumer.kill().unwrap();
    consumer.wait().unwrap();
}

#[test]
fn a_start_beyond_the_end_of_some_partitions_is_told_and_waits_there() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    produce(&hub, &["eh1", "--partition", "0"], b"0\n1\n2\n");
    let output = run(&hub, &["consume", "eh1", "--from", "seq:2", "--until-end"], b"");
    assert_eq!(text(&output.stdout), "2\n");
    assert_eq!(
        text(&output.stderr),
        "partition 1: seq:2 is not there yet, it has no event: starting with the first\n"
    );
}

#[test]
fn a_hub_without_events_is_read_to_its_end_at_once() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    assert_eq!(consume(&hub, &["eh1"]), b"");
    assert_eq!(consume(&hub, &["eh1", "--from", "latest"]), b"");
}

#[test]
fn a_number_of_events_is_enough() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    produce(&hub, &["eh1", "--body", "{n}", "--count", "5000"], b"");
    let output = run(&hub, &["consume", "eh1", "-n", "1234"], b"");
    assert!(output.status.success() && output.stderr.is_empty());
    assert_eq!(text(&output.stdout).lines().count(), 1_234);
}

#[test]
fn a_template_shapes_each_line() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    produce(&hub, &["eh1", "--key", "k", "--property", "colour=red"], b"hello\n");
    let printed =
        consume(&hub, &["eh1", "--format", "{partition}/{sequence} {key} {property:colour} {{{body}}}\\t."]);
    assert_eq!(text(&printed), "0/0 k red {hello}\t.\n");
    let output = run(&hub, &["consume", "eh1", "--format", "{colour}"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no {colour}: use {body}"));
}

#[test]
fn a_pipe_that_nobody_reads_ends_it_quietly_even_without_events() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    produce(&hub, &["eh1"], b"one\ntwo\n");
    let mut consumer = spawn(&hub, &["consume", "eh1"]);
    let mut shown = BufReader::new(consumer.stdout.take().unwrap());
    shown.read_line(&mut String::new()).unwrap();
    // As `head -1` does; no event comes after.
    drop(shown);
    let status = wait_for("its end", || consumer.try_wait().unwrap());
    let output = consumer.wait_with_output().unwrap();
    assert!(status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_pipe_that_is_closed_in_the_midst_of_much_ends_it_quietly() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    produce(&hub, &["eh1", "--body", "a line of some length, number {n}", "--count", "50000"], b"");
    let mut consumer = spawn(&hub, &["consume", "eh1", "--until-end"]);
    let mut shown = BufReader::new(consumer.stdout.take().unwrap());
    shown.read_line(&mut String::new()).unwrap();
    drop(shown);
    let output = consumer.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn an_interrupt_ends_it_quietly() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    produce(&hub, &["eh1"], b"one\n");
    let mut consumer = spawn(&hub, &["consume", "eh1"]);
    let mut shown = BufReader::new(consumer.stdout.take().unwrap());
    shown.read_line(&mut String::new()).unwrap();
    interrupt(&consumer);
    let output = consumer.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn reading_goes_on_where_it_was_after_the_hub_was_away() {
    let mut hub = Hub::start(&["--hub", "eh1:1"]);
    let port = hub.port("amqp_port").to_string();
    produce(&hub, &["eh1"], b"one\ntwo\n");
    let mut consumer = spawn(&hub, &["consume", "eh1"]);
    let mut shown = BufReader::new(consumer.stdout.take().unwrap()).lines();
    assert_eq!(
        (shown.next().unwrap().unwrap(), shown.next().unwrap().unwrap()),
        ("one".into(), "two".into())
    );
    hub.signal(rustix::process::Signal::KILL);
    hub.wait();
    let dir = hub.leave();
    let mut again = partita(&["serve", "--http-port", "0", "--port", &port]);
    again.arg("--data").arg(dir.path().join("data")).arg("--ready-file").arg(dir.path().join("ready.json"));
    let hub = Hub::run(again, dir);
    produce(&hub, &["eh1"], b"three\n");
    assert_eq!(shown.next().unwrap().unwrap(), "three", "nothing is repeated, nothing is left out");
    interrupt(&consumer);
    let output = consumer.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.ends_with("; trying again\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_group_that_is_not_there_is_told() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    for (args, part) in [
        (&["eh1", "-g", "nobody"][..], "nobody"),
        (&["eh1", "--partition", "9"], "there is no partition 9 in hub eh1: they are 0 to 1"),
        (&["nothing"], "nothing"),
    ] {
        let (code, said) = refused(&run(&hub, &[&["consume"], args].concat(), b""));
        assert_eq!(code, 7, "{said}");
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn events_that_retention_removed_are_told_with_their_numbers_and_by_the_exit_code() {
    let hub = Hub::start(&["--hub", "eh1:1", "--retention-size", "4MiB"]);
    let body = "x".repeat(60_000);
    wait_for("retention", || {
        produce(&hub, &["eh1", "--body", &body, "-n", "50"], b"");
        let shown = run(&hub, &["consume", "eh1", "-n", "1", "--format", "{sequence}"], b"");
        text(&shown.stdout).trim().parse::<u64>().ok().filter(|first| *first > 0)
    });
    let args = ["consume", "eh1", "--from", "seq:0", "--until-end", "--quiet", "--format", "{sequence}"];
    let output = run(&hub, &args, b"");
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    let first: u64 = printed.lines().next().unwrap().parse().unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let gap = format!("events 0 to {}: removed by retention before they were read", first - 1);
    assert!(said.contains(&gap), "{said}");
    assert!(said.contains(&format!("error: at most {first} events were gone")), "{said}");
    // What is asked for and there is no loss.
    let output = run(&hub, &["consume", "eh1", "--until-end", "--format", "{sequence}"], b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn all_events_of_1024_partitions_are_sent_and_printed() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1024"]);
    let lines: Vec<String> = (0..2_048).map(|n| format!("event {n:04}")).collect();
    produce(&hub, &["eh1"], (lines.join("\n") + "\n").as_bytes());
    let printed = text(&consume(&hub, &["eh1"]));
    let mut printed: Vec<&str> = printed.lines().collect();
    printed.sort_unstable();
    assert_eq!(printed, lines);
}

#[test]
fn the_last_events_of_each_partition_are_enough() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    produce(&hub, &["eh1", "-p", "0"], b"a0\na1\na2\n");
    produce(&hub, &["eh1", "-p", "1"], b"b0\n");
    let last = |count: &str| {
        let printed = text(&consume(&hub, &["eh1", "--last", count]));
        let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(" ")
    };
    assert_eq!(["0", "1", "2", "99"].map(last), ["", "a2 b0", "a1 a2 b0", "a0 a1 a2 b0"]);
    let both = run(&hub, &["consume", "eh1", "--last", "1", "--from", "earliest"], b"");
    assert_eq!(both.status.code(), Some(2));
}
