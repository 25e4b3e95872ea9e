//! What the hub and its commands say of mistakes that are easily made.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Hub, partita, text};

#[track_caller]
fn fails(command: &mut std::process::Command, code: i32, parts: &[&str]) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn a_size_that_the_documents_name_is_taken_and_one_that_keeps_nothing_is_refused() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let http = hub.http();
    hub.says(&["hub", "create", "large", "--retention-size", "4EiB"]);
    assert!(hub.says(&["hub", "describe", "large"]).contains("4 EiB"));
    for args in [
        &["hub", "change", "eh1", "--retention", "0s"][..],
        &["hub", "change", "eh1", "--retention-size", "0"],
        &["hub", "create", "none", "--retention", "0d"],
    ] {
        fails(partita(args).args(["--http", &http]), 2, &["a retention of 0 would keep nothing"]);
    }
    for text in ["500ms", "1.5s"] {
        let words = format!("a retention time has whole seconds, and {text} has not");
        fails(partita(&["hub", "create", "none", "--retention", text]).args(["--http", &http]), 2, &[&words]);
        fails(&mut partita(&["serve", "--memory", "--retention", text]), 2, &[&words]);
    }
    fails(
        &mut partita(&["serve", "--memory", "--retention", "0s"]),
        2,
        &["a retention of 0 would keep nothing"],
    );
}

#[test]
fn directories_and_partitions_that_are_none_are_told_with_what_to_do() {
    for args in [
        &["hub", "check", "--data", "nodir"][..],
        &["hub", "accept-loss", "eh1", "--data", "nodir", "-p", "0", "--from", "1", "--to", "2"],
    ] {
        fails(
            &mut partita(args),
            4,
            &["there is no directory nodir: name the one that 'partita serve --data' has"],
        );
    }
    for args in [
        &["hub", "accept-loss", "eh1", "-p", "x", "--from", "1", "--to", "2"][..],
        &["fault", "busy", "--hub", "eh1", "--partition", "x"],
    ] {
        fails(&mut partita(args), 2, &["write its id, such as 0", "partita hub describe"]);
    }
}

#[test]
fn a_disabled_hub_is_told_in_the_list() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    hub.says(&["hub", "disable", "eh1"]);
    let list = hub.says(&["hub", "list"]);
    assert!(list.contains("Hub eh1 is disabled: ") && list.contains("'partita hub enable eh1'"), "{list}");
}

/// What is answered to a request with this `Origin`.
fn answer(port: u16, request: &str, origin: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_page_without_an_origin_is_told_what_it_can_do() {
    let hub = Hub::start(&["--memory"]);
    for (port, request) in
        [(hub.port("amqp_port"), "GET /$servicebus/websocket"), (hub.port("http_port"), "GET /api/v1/hubs")]
    {
        let null = answer(port, request, "null");
        assert!(
            null.contains(" 403 ")
                && null.contains("Origin: null")
                && null.contains("serve the page over HTTP"),
            "{null}"
        );
        assert!(!null.contains("--allow-origin"), "it cannot be allowed: {null}");
        let empty = answer(port, request, "");
        assert!(empty.contains(" 403 ") && empty.contains("Origin header is empty: leave"), "{empty}");
    }
}

#[test]
fn a_loss_names_its_partition_as_the_answers_do_or_as_a_number() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    for (partition, part) in [("\"0\"", "is not lost"), ("0", "is not lost"), ("\"x\"", "written as its id")]
    {
        let body = format!("{{\"partition\":{partition},\"first\":0,\"last\":0}}");
        let mut response = ureq::post(format!("{}/api/v1/hubs/eh1/losses", hub.http()))
            .config()
            .http_status_as_error(false)
            .build()
            .content_type("application/json")
            .send(body)
            .unwrap();
        let said = response.body_mut().read_to_string().unwrap();
        assert!(said.contains(part), "{partition}: {said}");
    }
}
