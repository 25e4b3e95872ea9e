//! A status that is drawn over and over.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pty;
use rustix::termios::{Winsize, tcsetwinsize};

use crate::fleet::Fleet;
use crate::support::wait_for;

#[test]
fn the_terminal_is_as_it_was_after_a_watch() {
    let fleet = Fleet::new("eh1:32:cg1");
    let alpha = fleet.start("alpha");
    fleet.wait_for_owners(&[("alpha", 32)]);
    let ours = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
    pty::grantpt(&ours).unwrap();
    pty::unlockpt(&ours).unwrap();
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = pty::ptsname(&ours, Vec::new()).unwrap();
    let theirs: OwnedFd = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
    let mut command = fleet.command("status", &["--watch", "--interval", "100ms"]);
    command.env("TERM", "xterm").stdin(Stdio::null()).stdout(theirs).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut screen = File::from(ours);
    let mut shown = String::new();
    let mut bytes = [0; 4_096];
    while shown.matches("Ctrl-C ends").count() < 3 {
        let count = screen.read(&mut bytes).unwrap();
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // The end of the terminal is an error on Linux.
    while let Ok(count @ 1..) = screen.read(&mut bytes) {
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert_eq!(wait_for("its end", || child.try_wait().unwrap()).code(), Some(0));
    assert!(shown.starts_with("\x1b[?1049h\x1b[?25l"), "another screen, no cursor");
    let (drawn, left) = shown.split_once("\x1b[?25h\x1b[?1049l").expect("left again");
    let left: Vec<&str> = left.split("\r\n").collect();
    assert!(
        left[0].contains("cg1 of eh1 at localhost:") && left[0].contains(": 32 partitions"),
        "what was seen last stays: {left:?}"
    );
    assert!(left.len() > 40, "all of it: {left:?}");
    // Each picture fits.
    for picture in drawn.split("\x1b[H").skip(1) {
        let lines: Vec<&str> = picture.split("\r\n").collect();
        assert!(lines.len() <= 24, "{} lines", lines.len());
        assert!(picture.contains("more partitions") && picture.contains("alpha       32  live"), "{picture}");
    }
    fleet.stop(alpha);
}

#[test]
fn without_a_terminal_each_look_is_a_line_of_json() {
    let fleet = Fleet::new("eh1:1:cg1");
    let alpha = fleet.start("alpha");
    fleet.wait_for_owners(&[("alpha", 1)]);
    let mut command = fleet.command("status", &["--watch", "--interval", "100ms", "-o", "json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.take(3) {
        let status: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(status["partitions"][0]["owner"], "alpha");
    }
    // Nobody reads any more: it ends by itself, quietly.
    assert!(wait_for("its end", || child.try_wait().unwrap()).success());
    fleet.stop(alpha);
}
