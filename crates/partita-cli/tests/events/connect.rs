//! How a hub is found, and what is said when it is not: one sentence, soon, with the exit code that is documented.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{produce, refused};
use crate::support::{Hub, partita, text};

/// Long enough for a busy machine, and still soon for whoever waits.
const SOON: Duration = Duration::from_secs(20);

#[track_caller]
fn check(command: &mut Command, code: i32, parts: &[&str]) {
    let began = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let (found, said) = refused(&output);
    assert_eq!(found, code, "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(!said.contains("s3cret"), "{said}");
}

fn with(string: &str, args: &[&str]) -> Command {
    let mut command = partita(args);
    command.env("EVENTHUBS_CONNECTION_STRING", string);
    command
}

const EMULATOR: &str =
    "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

#[test]
fn a_file_goes_before_the_environment_and_both_variables_are_read() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    produce(&hub, &["eh1"], b"hello\n");
    let string = hub.ready["connection_string"].as_str().unwrap();
    let file = hub.path("connection");
    std::fs::write(&file, format!("# the test's\n{string}\n")).unwrap();
    let args = ["consume", "eh1", "--until-end"];
    let nowhere = format!("Endpoint=sb://localhost:1;{EMULATOR}");
    let mut by_file = with(&nowhere, &args);
    by_file.arg("--connection-file").arg(file);
    // Ours goes before those of others.
    let mut by_our_variable = with(&nowhere, &args);
    by_our_variable.env("PARTITA_CONNECTION_STRING", string);
    let mut by_other_variable = partita(&args);
    by_other_variable.env("EVENT_HUB_CONNECTION_STRING", string);
    for command in [&mut by_file, &mut by_our_variable, &mut by_other_variable] {
        let output = command.output().unwrap();
        assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));
    }
}

#[test]
fn strings_that_cannot_be_used() {
    let of_hub = format!("Endpoint=sb://localhost;{EMULATOR};EntityPath=eh2");
    check(
        &mut with(&of_hub, &["consume", "eh1"]),
        2,
        &["names the hub 'eh2', but 'eh1' was asked for", "$EVENTHUBS_CONNECTION_STRING"],
    );
    let no_key = "Endpoint=sb://localhost;SharedAccessKey=s3cret";
    check(&mut with(no_key, &["produce", "eh1"]), 2, &["has no SharedAccessKeyName"]);
    let iot_hub = "HostName=h.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=s3cret";
    check(
        &mut with(iot_hub, &["consume", "eh1"]),
        2,
        &["is of an IoT hub", "Event Hubs-compatible endpoint"],
    );
    let mut no_file = partita(&["event", "show", "eh1", "0", "0"]);
    check(no_file.args(["--connection-file", "/no/such/file"]), 2, &["/no/such/file"]);
}

#[test]
fn nobody_answers() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let string = format!("Endpoint=sb://127.0.0.1:{free};{EMULATOR}");
    let file = tempfile::NamedTempFile::new().unwrap();
    for args in [
        &["consume", "eh1"][..],
        &["produce", "eh1"],
        &["produce", "eh1", "--body", "x"],
        &["event", "show", "eh1", "0", "0"],
    ] {
        check(
            &mut with(&string, args),
            5,
            &[&format!("cannot connect to 127.0.0.1:{free}: is the hub running?")],
        );
    }
    drop(file);
    let no_host = format!("Endpoint=sb://no-such-host.invalid;{EMULATOR}");
    check(&mut with(&no_host, &["consume", "eh1"]), 5, &["'no-such-host.invalid' is not found"]);
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_long() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let string = format!("Endpoint=sb://127.0.0.1:{port};{EMULATOR}");
    check(&mut with(&string, &["consume", "eh1"]), 5, &["did not answer within 5s"]);
}

#[test]
fn a_wrong_key_and_a_hub_that_is_not_there() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let port = hub.port("amqp_port");
    let wrong = format!(
        "Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=s3cret;UseDevelopmentEmulator=true"
    );
    for args in [&["consume", "eh1"][..], &["produce", "eh1", "--body", "x"]] {
        check(&mut with(&wrong, args), 6, &["access to sb://localhost/eh1 was refused", "check key"]);
    }
    let string = hub.ready["connection_string"].as_str().unwrap();
    for args in [
        &["consume", "other"][..],
        &["produce", "other", "--body", "x"],
        &["event", "show", "other", "0", "0"],
    ] {
        check(&mut with(string, args), 7, &["error: no such hub 'other': there are eh1\n"]);
        let output = with(string, args).stdin(Stdio::null()).output().unwrap();
        assert!(!text(&output.stderr).contains("was refused"), "it was not: there is no such hub");
    }
    for args in [&["consume", "eh1", "-g", "nobody"][..], &["consume", "eh1", "-g", "nobody", "--until-end"]]
    {
        check(
            &mut with(string, args),
            7,
            &["error: no such consumer group 'nobody': hub 'eh1' has the consumer groups $Default\n"],
        );
    }
}

#[test]
fn tls_with_an_authority_of_ones_own_and_websockets() {
    let hub = Hub::start(&["--hub", "eh1:1", "--tls-self-signed"]);
    produce(&hub, &["eh1"], b"hello\n");
    let tls = hub.ready["tls_connection_string"].as_str().unwrap();
    let plain = hub.ready["connection_string"].as_str().unwrap();
    let authority = hub.path("data/tls/ca.pem");
    let authority = authority.to_str().unwrap();
    assert!(
        std::path::Path::new(authority).exists(),
        "{:?}",
        std::fs::read_dir(hub.path("data/tls")).unwrap().collect::<Vec<_>>()
    );
    let args = ["consume", "eh1", "--until-end"];
    for mut command in [
        with(tls, &[&args[..], &["--ca-file", authority]].concat()),
        with(tls, &[&args[..], &["--ca-file", authority, "--websocket"]].concat()),
        with(plain, &[&args[..], &["--websocket"]].concat()),
    ] {
        let output = command.output().unwrap();
        assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));
    }
    check(&mut with(tls, &args), 1, &["certificate of 'localhost' is not trusted"]);
    let mut both = with(plain, &[&args[..], &["--ca-file", authority]].concat());
    check(&mut both, 2, &["--ca-file is for connections with TLS", "UseDevelopmentEmulator"]);
}

#[test]
fn completions_are_printed_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = partita(&["completions", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("until-end"), "{shell}");
    }
}

#[test]
fn exit_codes_are_in_the_help() {
    for args in
        [&["--help"][..], &["consume", "--help"], &["produce", "--help"], &["event", "show", "--help"]]
    {
        let help = text(&partita(args).output().unwrap().stdout);
        assert!(help.contains("Exit code: 0 ") && help.contains("6 access was"), "{help}");
        assert_eq!(help.lines().find(|line| line.chars().count() > 100), None);
    }
}
