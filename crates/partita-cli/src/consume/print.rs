//! Writes events to stdout.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use partita_core::model::{Event, PartitionId};

use super::{Args, Form};
use crate::Failure;
use crate::events::{Shown, Template, escaped};
use crate::output::steers;

/// How much is gathered before it is written.
const BUFFER_BYTES: usize = 64 << 10;

/// Prints, and counts.
pub(crate) struct Printer {
    out: StdoutLock<'static>,
    partitions: Vec<PartitionId>,
    /// None: lines of JSON.
    template: Option<Template>,
    is_terminal: bool,
    buffer: Vec<u8>,
    left: Option<u64>,
    printed: u64,
}

impl Printer {
    pub(crate) fn new(args: &Args, partitions: Vec<PartitionId>) -> Self {
        let template = match args.output {
            Form::Jsonl => None,
            Form::Text => Some(args.format.clone().unwrap_or_else(Template::body)),
        };
        Self {
            out: io::stdout().lock(),
            partitions,
            template,
            is_terminal: io::stdout().is_terminal(),
            buffer: Vec::with_capacity(BUFFER_BYTES),
            left: args.count,
            printed: 0,
        }
    }

    /// Whether there are as many as were wanted.
    pub(crate) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn printed(&self) -> u64 {
        self.printed
    }

    pub(crate) fn print(&mut self, at: usize, events: &[Event], stop: &AtomicBool) -> Result<(), Failure> {
        for event in events {
            if self.is_done() || stop.load(Ordering::Relaxed) {
                break;
            }
            let begin = self.buffer.len();
            let partition = &self.partitions[at];
            match &self.template {
                Some(template) => template.fill(partition, event, &mut self.buffer),
                None => serde_json::to_writer(&mut self.buffer, &Shown::of(partition, event))
                    .map_err(|error| Failure::Run(format!("an event is no JSON: {error}")))?,
            }
            match &self.template {
                Some(_) if self.is_terminal => self.tame(begin),
                None if self.is_terminal => self.tame_json(begin),
                _ => {}
            }
            self.buffer.push(b'\n');
            self.printed += 1;
            self.left = self.left.map(|left| left - 1);
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// The same for JSON, whose own escapes leave some letters alone. Those stand in its texts only.
    fn tame_json(&mut self, begin: usize) {
        let line = String::from_utf8_lossy(&self.buffer[begin..]).into_owned();
        if line.chars().any(steers) {
            self.buffer.truncate(begin);
            for letter in line.chars() {
                match steers(letter) {
                    true => self.buffer.extend(format!("\\u{:04x}", u32::from(letter)).bytes()),
                    false => self.buffer.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
                }
            }
        }
    }

    /// Replaces what would steer a terminal, from a place in the buffer on. A template's own line feeds stay.
    fn tame(&mut self, begin: usize) {
        let line = String::from_utf8_lossy(&self.buffer[begin..]).into_owned();
        if line.chars().any(|letter| steers(letter) && letter != '\t' && letter != '\n') {
            let mut tame = String::with_capacity(line.len() + 16);
            for (at, part) in line.split('\n').enumerate() {
                if at > 0 {
                    tame.push('\n');
                }
                escaped(part, &mut tame);
            }
            self.buffer.truncate(begin);
            self.buffer.extend(tame.as_bytes());
        } else {
            self.buffer.truncate(begin);
            self.buffer.extend(line.as_bytes());
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        self.buffer.clear();
        Ok(())
    }
}
