//! `partita hub` and `partita fault` against a hub that runs.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{Hub, partita, text};

fn json(hub: &Hub, args: &[&str]) -> Value {
    serde_json::from_str(&hub.says(&[args, &["-o", "json"]].concat())).expect("JSON")
}

#[track_caller]
fn fails(hub: &Hub, args: &[&str], code: i32, part: &str) {
    let output = hub.command(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(
        said.starts_with("error: ") && said.contains(part) && said.trim_end().lines().count() == 1,
        "{said}"
    );
}

#[test]
fn hubs_and_groups_are_made_shown_changed_and_deleted() {
    let hub = Hub::start(&["--memory"]);
    assert_eq!(
        hub.says(&["hub", "create", "orders", "-p", "2", "-g", "billing"]),
        "Made hub orders with 2 partitions.\n"
    );
    fails(&hub, &["hub", "create", "orders"], 1, "hub 'orders' already exists");
    fails(&hub, &["hub", "create", "a/b"], 2, "invalid name 'a/b' for a hub or group");

    let list = hub.says(&["hub", "list"]);
    let mut lines = list.lines();
    let words = |line: Option<&str>| line.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines.next()), ["HUB", "PARTITIONS", "EVENTS", "ON", "DISK", "KEEPS", "GROUPS"]);
    assert_eq!(words(lines.next())[..3], ["eh1", "4", "0"]);
    let orders = words(lines.next());
    assert_eq!(
        (&orders[..3], &orders[orders.len() - 2..]),
        (&["orders".to_owned(), "2".into(), "0".into()][..], &["$Default".to_owned(), "billing".into()][..])
    );
    assert!(list.lines().all(|line| line.chars().count() <= 80 && !line.starts_with(' ')), "{list}");

    let described = hub.says(&["hub", "describe", "ORDERS"]);
    assert!(
        described.starts_with("hub      orders\n") && described.contains("groups   $Default billing\n"),
        "{described}"
    );
    assert!(described.contains("PARTITION  EVENTS  FIRST  LAST"), "{described}");

    hub.says(&["hub", "group", "create", "orders", "audit"]);
    hub.says(&["hub", "group", "delete", "orders", "billing"]);
    fails(
        &hub,
        &["hub", "group", "delete", "orders", "billing"],
        7,
        "hub 'orders' has no consumer group 'billing'",
    );
    fails(&hub, &["hub", "group", "delete", "orders", "$Default"], 2, "belongs to every hub");
    let changed = json(&hub, &["hub", "change", "orders", "-p", "5", "--retention", "90m"]);
    assert_eq!((&changed["partition_count"], &changed["retention_seconds"]), (&json!(5), &json!(5_400)));
    assert_eq!(changed["consumer_groups"], json!(["$Default", "audit"]));
    assert_eq!(json(&hub, &["hub", "disable", "orders"])["disabled"], true);
    assert!(hub.says(&["hub", "describe", "orders"]).contains("is disabled"));
    assert_eq!(json(&hub, &["hub", "enable", "orders"])["disabled"], false);
    assert!(!hub.says(&["hub", "describe", "orders"]).contains("is disabled"));
    fails(&hub, &["hub", "change", "orders", "-p", "1"], 1, "partitions are never removed");
    fails(&hub, &["hub", "change", "orders"], 2, "say what is to change");

    fails(&hub, &["hub", "delete", "orders"], 2, "there is no terminal to ask on: add --yes");
    assert!(hub.says(&["hub", "list"]).contains("orders"), "nothing was deleted");
    assert_eq!(hub.says(&["hub", "delete", "orders", "--yes"]), "Deleted hub orders.\n");
    fails(&hub, &["hub", "describe", "orders"], 7, "there is no hub 'orders'");
    assert_eq!(json(&hub, &["hub", "delete", "eh1", "--yes"]), json!({"deleted": "eh1"}));
    assert_eq!(hub.says(&["hub", "list"]), "There is no hub: make one with 'partita hub create NAME'.\n");
    assert_eq!(json(&hub, &["hub", "list"]), json!({"hubs": []}));
}

#[test]
fn faults_are_added_listed_and_removed() {
    let hub = Hub::start(&["--memory"]);
    assert_eq!(hub.says(&["fault", "list"]), "There is no fault.\n");
    let said = hub.says(&[
        "fault",
        "detach",
        "--hub",
        "eh1",
        "--partition",
        "1",
        "--role",
        "receiver",
        "--count",
        "2",
    ]);
    assert_eq!(said, "Fault 1: the hub detaches receivers of eh1/1 with amqp:link:detach-forced, 2 times.\n");
    let said = hub.says(&["fault", "delay", "250ms"]);
    assert_eq!(said, "Fault 2: the hub delays all links by 250ms, until 'partita fault remove 2'.\n");
    hub.says(&["fault", "busy", "--hub", "eh1", "--for", "1h"]);
    hub.says(&["fault", "drop", "--role", "sender", "--count", "1", "--for", "1h"]);
    let list = hub.says(&["fault", "list"]);
    let rows: Vec<_> =
        list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        [
            "ID FAULT LINKS UNTIL HITS",
            "1 detach with amqp:link:detach-forced receivers of eh1/1 2 times 0",
            "2 delay of 250ms all links until removed 0",
            "3 busy all links of eh1 for 1h 0",
            "4 drop senders once or for 1h 0",
        ]
    );
    assert_eq!(json(&hub, &["fault", "list"])["faults"][1]["delay_ms"], 250);
    hub.says(&["fault", "remove", "2"]);
    fails(&hub, &["fault", "remove", "2"], 7, "there is no fault 2");
    fails(&hub, &["fault", "busy", "--hub", "none"], 7, "there is no hub 'none'");
    fails(&hub, &["fault", "busy", "--hub", "eh1", "--partition", "4"], 7, "has no partition 4");
    hub.says(&["fault", "clear"]);
    assert_eq!(hub.says(&["fault", "list"]), "There is no fault.\n");
}

#[test]
fn where_no_hub_answers_the_command_says_what_to_do() {
    let ask = |url: &str| {
        let output = partita(&["hub", "list", "--http", url]).output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    let free = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let (code, said) = ask(&format!("http://{free}"));
    assert!(
        code == 5 && said.contains("nothing listens there") && said.contains("'partita serve'"),
        "{said}"
    );
    let (code, said) = ask("localhost:5300");
    assert!(code == 2 && said.contains("write http://HOST:PORT"), "{said}");
    // Something else lives there.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.read(&mut [0; 4_096]);
        stream
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nnope\n")
            .unwrap();
    });
    let (code, said) = ask(&url);
    answer.join().unwrap();
    assert!(code == 5 && said.contains("is no Partita hub"), "{said}");
}
