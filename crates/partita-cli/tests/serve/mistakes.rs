//! What cannot be done: one sentence, the exit code that is documented, and nothing changed.

use std::net::TcpListener;
use std::path::Path;

use crate::support::{Hub, partita, refused, serve};

fn said(dir: &Path, args: &[&str]) -> (i32, String) {
    let (code, said) = refused(&mut serve(dir, args));
    assert!(said.starts_with("error: ") && said.trim_end().lines().count() == 1, "one sentence: {said}");
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
    assert!(!dir.join("ready.json").exists());
    (code, said)
}

#[track_caller]
fn check((code, said): (i32, String), wanted: i32, parts: &[&str]) {
    assert_eq!(code, wanted, "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn ports_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = dir.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    let in_use = format!("port {port} is in use on 127.0.0.1");
    for option in ["--port", "--http-port", "--tls-port"] {
        let mut command = partita(&["serve", "--tls-self-signed"]);
        for other in ["--port", "--http-port", "--tls-port"] {
            command.args([other, if other == option { &port } else { "0" }]);
        }
        check(refused(command.args(data)), 3, &[&in_use, option]);
    }
    assert!(!dir.path().join("data").exists(), "nothing was touched");
    check(
        said(dir.path(), &["--listen", "192.0.2.1", data[0], data[1]]),
        3,
        &["192.0.2.1 is no address of this machine"],
    );
}

#[test]
fn data_directories_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
    let foreign = foreign.to_str().unwrap();
    check(
        said(dir.path(), &["--data", foreign]),
        4,
        &["is not a Partita data directory", "choose an empty or new one"],
    );
    check(
        said(dir.path(), &["--data", foreign, "--reset", "--yes"]),
        4,
        &["is not a Partita data directory"],
    );
    assert!(Path::new(foreign).join("thesis.txt").exists());

    let file = dir.path().join("foreign/thesis.txt");
    check(said(dir.path(), &["--data", file.to_str().unwrap()]), 4, &["thesis.txt"]);

    let hub = Hub::start(&[]);
    let data = hub.path("data");
    let in_use = ["--data", data.to_str().unwrap()];
    check(said(dir.path(), &in_use), 4, &["is in use by another process"]);
    check(
        said(dir.path(), &[&in_use[..], &["--reset", "--yes"]].concat()),
        4,
        &["is in use by another process"],
    );
    let (used, _) = hub.stop();

    let store = used.path().join("data/STORE");
    let whole = std::fs::read(&store).unwrap();
    let mut newer = whole.clone();
    newer[8..10].copy_from_slice(&99u16.to_le_bytes());
    let crc = crc32fast::hash(&newer[..28]);
    newer[28..].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&store, &newer).unwrap();
    check(said(dir.path(), &in_use), 4, &["has data format 99", "use a newer program"]);
    let mut damaged = whole;
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&store, &damaged).unwrap();
    check(said(dir.path(), &in_use), 4, &["is damaged"]);
}

#[test]
fn a_directory_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    // Read-only to everybody, root included.
    check(said(dir.path(), &["--data", "/proc/partita-data"]), 4, &["/proc/partita-data"]);
}

#[test]
fn config_files_with_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("Config.json");
    let args = ["--config", config.to_str().unwrap()];
    check(said(dir.path(), &args), 2, &["cannot read", "Config.json"]);
    for (text, part) in [
        ("{", "Config.json, line 1: is not JSON"),
        ("{}", "Config.json, line 1: the file has no UserConfig"),
        (
            "{\"UserConfig\": {\"NamespaceConfig\": [{\"Entities\": [\n{\"Name\": \"eh1\", \"PartitionCount\": 0}]}]}}",
            "Config.json, line 2: UserConfig.NamespaceConfig[0].Entities[0].PartitionCount is 0: a hub has 1 to 1024",
        ),
    ] {
        std::fs::write(&config, text).unwrap();
        check(said(dir.path(), &args), 2, &[part]);
    }
}

#[test]
fn keys_and_certificates_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    check(
        said(dir.path(), &["--key-file", "/no/such/key"]),
        2,
        &["cannot read the key", "name the file that it is in"],
    );
    check(said(dir.path(), &["--rule", "x:send=env:NO_SUCH_KEY"]), 2, &["$NO_SUCH_KEY", "not set"]);
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let key_itself = said(dir.path(), &["--rule", "x:send=c2VjcmV0/c2VjcmV0="]);
    assert!(!key_itself.1.contains("c2Vj"), "{}", key_itself.1);
    check(key_itself, 2, &["rule 'x'", "name the file that it is in"]);
    let right_and_key = said(dir.path(), &["--rule", "x:fly=c2VjcmV0"]);
    assert!(!right_and_key.1.contains("c2Vj"), "{}", right_and_key.1);
    check(said(dir.path(), &["--config", "/dev/zero"]), 2, &["/dev/zero", "more than 16 MiB"]);
    check(said(dir.path(), &["--key-file", empty]), 2, &["is empty"]);
    let none = "/no/such/cert";
    check(
        said(dir.path(), &["--tls-cert", none, "--tls-key", none]),
        2,
        &["cannot read a certificate from /no/such/cert"],
    );
    check(
        said(dir.path(), &["--tls-cert", empty, "--tls-key", empty]),
        2,
        &["holds no certificate in PEM form"],
    );
}

#[test]
fn hubs_that_cannot_be_made_so() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&["--hub", "eh1:4"]);
    let (used, _) = hub.stop();
    let data = used.path().join("data");
    let args = ["--data", data.to_str().unwrap(), "--hub", "eh1:2"];
    check(said(dir.path(), &args), 2, &["--hub eh1:2: hub 'eh1' has 4 partitions", "ask for 4 instead of 2"]);
}

#[test]
fn a_reset_that_nobody_can_be_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let (used, _) = Hub::start(&["--hub", "one:1"]).stop();
    let data = used.path().join("data");
    let args = ["--data", data.to_str().unwrap(), "--reset"];
    let (code, said) = refused(&mut serve(dir.path(), &args));
    check((code, said), 2, &["hub one: all its events", "no terminal to ask on: add --yes"]);
    let hub = Hub::start_in(used, &[]);
    assert_eq!(hub.get_json("/api/v1/hubs")["hubs"][0]["name"], "one", "nothing was deleted");
}

#[test]
fn options_that_mean_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (args, part) in [
        (&["--hub", "eh1"][..], "such as eh1:4:cg1"),
        (&["--retention", "soon"], "invalid duration"),
        (&["--retention-size", "much"], "invalid size"),
        (&["--fsync", "sometimes"], "possible values: always, interval, never"),
        (&["--listen", "everywhere"], "write localhost"),
        (&["--rule", "x:fly=key"], "a right is listen, send or manage"),
    ] {
        let (code, said) = refused(&mut serve(dir.path(), args));
        check((code, said), 2, &[part]);
    }
}

#[test]
fn a_ready_file_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut command =
        partita(&["serve", "--memory", "--port", "0", "--http-port", "0", "--ready-file", "/no/such/dir/f"]);
    check(refused(&mut command), 1, &["cannot write the ready file /no/such/dir/f"]);
    drop(dir);
}
