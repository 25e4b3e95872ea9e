//! Starts after something was taken away, and a data directory that goes while the hub runs: exit code, sentence, option.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::{Hub, partita, refused, serve, text, wait_for};

/// Sends events to partition 0 of eh1.
fn produce(hub: &Hub, events: &str) -> Output {
    let mut child = partita(&["produce", "eh1", "--partition", "0"])
        .env("EVENTHUBS_CONNECTION_STRING", hub.ready["connection_string"].as_str().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(events.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn next_number(hub: &Hub) -> u64 {
    let eh1 = hub.get_json("/api/v1/hubs/eh1");
    let last = eh1["partitions"][0]["last_enqueued_sequence_number"].as_u64();
    last.unwrap_or_else(|| panic!("no last number in {eh1}")) + 1
}

#[track_caller]
fn check(dir: &Path, parts: &[&str]) {
    let data = dir.join("data");
    let (code, said) = refused(&mut serve(dir, &["--data", data.to_str().unwrap()]));
    assert_eq!(code, 4, "{said}");
    assert!(said.starts_with("error: ") && said.trim_end().lines().count() == 1, "one sentence: {said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(said.trim_end().ends_with("--accept-loss eh1"), "{said}");
}

#[test]
fn what_was_taken_away_is_missed_at_the_next_start_and_accepted_when_told() {
    let hub = Hub::start(&[]);
    assert!(produce(&hub, "one\ntwo\nthree\n").status.success());
    assert_eq!(next_number(&hub), 3);
    let (dir, _) = hub.stop();
    let log = dir.path().join("data/hubs/0000000000000001");

    std::fs::remove_file(log.join("0000000000000001.seg")).unwrap();
    check(
        dir.path(),
        &["hub 'eh1' lacks events 0 to 2 of partition 0", "which were acknowledged", "restore"],
    );
    let hub = Hub::start_in(dir, &["--accept-loss", "eh1"]);
    assert!(produce(&hub, "four\n").status.success());
    assert_eq!(next_number(&hub), 4, "no number is used twice");
    let (dir, said) = hub.stop();
    assert!(said.contains("goes on without events 0 to 2 of partition 0"), "{said}");

    std::fs::remove_file(log.join("meta")).unwrap();
    check(dir.path(), &["hub 'eh1' cannot be opened", "meta is missing", "partitions, groups and retention"]);
    let (dir, _) = Hub::start_in(dir, &["--accept-loss", "eh1"]).stop();

    std::fs::remove_dir_all(&log).unwrap();
    check(dir.path(), &["hub 'eh1' is missing with all its events"]);
    let hub = Hub::start_in(dir, &["--accept-loss", "eh1"]);
    assert_eq!(next_number(&hub), 4);
    let (dir, _) = hub.stop();
    let (_, said) = Hub::start_in(dir, &["--accept-loss", "eh1"]).stop();
    assert!(said.contains("nothing is missing"), "{said}");
}

#[test]
fn a_data_directory_without_its_store_file_says_what_to_restore() {
    let hub = Hub::start(&[]);
    assert!(produce(&hub, "one\n").status.success());
    let (dir, _) = hub.stop();
    let data = dir.path().join("data");
    std::fs::remove_file(data.join("STORE")).unwrap();
    let data = data.to_str().unwrap();
    for more in [&[][..], &["--reset", "--yes"]] {
        let (code, said) = refused(&mut serve(dir.path(), &[&["--data", data], more].concat()));
        assert_eq!(code, 4, "{said}");
        assert!(
            said.contains("the file STORE is missing from the data directory") && said.contains("restore"),
            "{said}"
        );
    }
    let checked = partita(&["hub", "check", "--data", data]).output().unwrap();
    assert!(text(&checked.stderr).contains("the file STORE is missing"), "{}", text(&checked.stderr));
}

#[test]
fn a_tail_that_was_cut_off_skips_no_number_after_a_clean_stop() {
    let hub = Hub::start(&[]);
    assert!(produce(&hub, "one\n").status.success());
    let (dir, _) = hub.stop();
    let path = dir.path().join("data/hubs/0000000000000001/0000000000000001.seg");
    let whole = std::fs::read(&path).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let hub = Hub::start_in(dir, &[]);
    assert!(produce(&hub, "two\nthree\n").status.success());
    let (dir, _) = hub.stop();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(end as u64).unwrap();
    check(dir.path(), &["hub 'eh1' lacks events 1 to 2 of partition 0, which were acknowledged"]);
    let hub = Hub::start_in(dir, &["--accept-loss", "eh1"]);
    assert_eq!(next_number(&hub), 3);
    let (_, said) = hub.stop();
    assert!(said.contains("segment 0000000000000001 was cut off at byte"), "{said}");
    assert!(said.contains("goes on without events 1 to 2 of partition 0"), "{said}");
}

#[test]
fn a_data_directory_deleted_under_a_running_hub_stops_it_from_acknowledging() {
    let mut hub = Hub::start(&[]);
    assert!(produce(&hub, "one\n").status.success());
    std::fs::remove_dir_all(hub.path("data")).unwrap();
    let health = wait_for("the health check to say so", || {
        let answer = ureq::get(format!("{}/health", hub.http())).config().http_status_as_error(false).build();
        let mut answer = answer.call().unwrap();
        (answer.status().as_u16() == 503).then(|| answer.body_mut().read_to_string().unwrap())
    });
    let (gone, remedy) = ("data was deleted or moved", "put the data directory back and restart the hub");
    assert!(
        health.contains("the data directory /") && health.contains(gone) && health.contains(remedy),
        "{health}"
    );
    hub.signal(rustix::process::Signal::TERM);
    hub.wait();
    let said = hub.said();
    assert_eq!(
        said.matches("data was deleted or moved while the hub runs: it takes no more events; put the data directory back")
            .count(),
        1,
        "{said}"
    );
    assert!(!hub.path("data").exists(), "nothing is made in its place: {}", text(said.as_bytes()));
}
