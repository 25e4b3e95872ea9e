//! From lines to encoded events, on a thread of its own, because reading blocks.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use partita_core::model::Event;
use partita_sources::eventhubs::EncodedEvent;
use tokio::sync::mpsc;

use super::progress::Read;
use super::routing::Routing;
use crate::Failure;
use crate::events::{Line, Record};

/// How much is read at once; what one read gave is handed over together.
const BUFFER_BYTES: usize = 256 << 10;
/// Beyond what any hub takes.
const LINE_BYTES_MAX: usize = 32 << 20;
/// How many events are handed over at once, and how often, before the sender has taken them.
const CHUNK_EVENTS_MAX: usize = 4_096;
pub(crate) const CHUNKS_MAX: usize = 4;
/// The shortest pause of a rate: what is due by then goes together.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// An event on its way, the place of its partition, and the line that it came from.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) line: u64,
    pub(crate) partition: usize,
    pub(crate) event: EncodedEvent,
}

pub(crate) type Chunk = Vec<Ready>;

/// Where lines come from.
pub(crate) enum Source {
    Stdin,
    File(File),
    Text(String),
}

impl Source {
    pub(crate) fn open(file: Option<&Path>, text: Option<&str>) -> Result<Self, Failure> {
        match (file, text) {
            (None, Some(text)) => Ok(Self::Text(text.to_owned())),
            (Some(path), None) if path != Path::new("-") => match File::open(path) {
                Ok(file) if file.metadata().is_ok_and(|meta| meta.is_dir()) => {
                    Err(Failure::Usage(format!("{} is a directory: name a file", path.display())))
                }
                Ok(file) => Ok(Self::File(file)),
                Err(error) => Err(Failure::Usage(format!("cannot read {}: {error}", path.display()))),
            },
            _ => Ok(Self::Stdin),
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Stdin) && io::stdin().is_terminal()
    }

    /// How many bytes there are to read, where that is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len()),
            _ => None,
        }
    }
}

/// All that turns lines into events.
pub(crate) struct Reading {
    pub(crate) source: Source,
    pub(crate) jsonl: bool,
    /// What stands between a line's key and its body.
    pub(crate) key_separator: Option<char>,
    pub(crate) count: Option<u64>,
    pub(crate) rate: Option<f64>,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) routing: Routing,
    /// Grows as it is read.
    pub(crate) read: Arc<Read>,
}

/// Why reading goes no further.
enum Stop {
    /// Enough, or nobody wants more.
    Enough,
    /// A sentence.
    Bad(String),
}

impl Reading {
    /// Reads to the end; what came before a mistake is handed over first.
    pub(crate) fn run(mut self, chunks: &mpsc::Sender<Chunk>) -> Result<(), String> {
        let source = std::mem::replace(&mut self.source, Source::Stdin);
        let mut sink = Sink::new(chunks, self.rate);
        let stop = match source {
            Source::Text(text) => self.repeat(&text, &mut sink),
            Source::File(file) => self.lines(BufReader::with_capacity(BUFFER_BYTES, file), &mut sink),
            Source::Stdin => self.lines(BufReader::with_capacity(BUFFER_BYTES, io::stdin()), &mut sink),
        };
        let _ = sink.flush();
        match stop {
            Ok(()) | Err(Stop::Enough) => Ok(()),
            Err(Stop::Bad(said)) => Err(said),
        }
    }

    fn repeat(&mut self, text: &str, sink: &mut Sink<'_>) -> Result<(), Stop> {
        for number in 0..self.count.unwrap_or(1) {
            let line = text.replace("{n}", &number.to_string());
            self.line(number + 1, line.as_bytes(), sink)?;
        }
        Ok(())
    }

    fn lines(&mut self, mut input: impl BufRead, sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut number = 0;
        // The beginning of a line whose end was not read yet.
        let mut begun = Vec::new();
        loop {
            let bytes = match input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => {
                    read.map_err(|error| Stop::Bad(format!("cannot read line {}: {error}", number + 1)))?
                }
            };
            let length = bytes.len();
            if length == 0 {
                // A last line may lack its end.
                return if begun.is_empty() { Ok(()) } else { self.line(number + 1, &begun, sink) };
            }
            let mut rest = bytes;
            while let Some(end) = memchr::memchr(b'\n', rest) {
                number += 1;
                if begun.is_empty() {
                    self.line(number, &rest[..end], sink)?;
                } else {
                    begun.extend(&rest[..end]);
                    self.line(number, &begun, sink)?;
                    begun.clear();
                }
                rest = &rest[end + 1..];
            }
            begun.extend(rest);
            if begun.len() > LINE_BYTES_MAX {
                let said = format!("line {}: it has more than {LINE_BYTES_MAX} bytes", number + 1);
                return Err(Stop::Bad(said));
            }
            self.read.bytes.fetch_add(length as u64, Ordering::Relaxed);
            input.consume(length);
            sink.flush()?;
        }
    }

    fn line(&mut self, number: u64, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        let bad = |said: String| Stop::Bad(format!("line {number}: {said}"));
        if self.count.is_some_and(|count| sink.given >= count) {
            return Err(Stop::Enough);
        }
        if self.jsonl && bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        let record = if self.jsonl {
            let text =
                std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8, as JSON is".to_owned()))?;
            // Some editors begin a file with a mark of its encoding.
            let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
            Line::parse(text).map_err(bad)?
        } else if let Some(separator) = self.key_separator {
            let (key, body) = keyed(bytes, separator).map_err(bad)?;
            Record { event: Event::builder(Bytes::copy_from_slice(body)), key: Some(key), partition: None }
        } else {
            Record { event: Event::builder(Bytes::copy_from_slice(bytes)), key: None, partition: None }
        };
        let (partition, key) = self.routing.route(record.partition.as_deref(), record.key).map_err(bad)?;
        let mut event = record.event;
        if let Some(key) = key {
            event = event.partition_key(key);
        }
        for (name, value) in &self.properties {
            event = event.property(name, value.as_str());
        }
        let event = EncodedEvent::new(event).map_err(|error| bad(format!("it cannot be sent: {error}")))?;
        sink.push(Ready { line: number, partition, event })?;
        self.read.events.fetch_add(1, Ordering::Relaxed);
        // The next line may be long in coming.
        if self.count.is_some_and(|count| sink.given >= count) { Err(Stop::Enough) } else { Ok(()) }
    }
}

/// A line's key and body.
fn keyed(line: &[u8], separator: char) -> Result<(String, &[u8]), String> {
    let (mut letters, shown) = ([0; 4], separator.escape_debug());
    let separator = separator.encode_utf8(&mut letters).as_bytes();
    let at = memchr::memmem::find(line, separator)
        .ok_or_else(|| format!("it has no '{shown}' between key and body (--key-separator)"))?;
    let key = std::str::from_utf8(&line[..at]).map_err(|_| "its key is not UTF-8".to_owned())?;
    if key.is_empty() {
        return Err(format!("its key, before the '{shown}', is empty"));
    }
    Ok((key.to_owned(), &line[at + separator.len()..]))
}

/// Takes events at their rate and hands them over.
struct Sink<'a> {
    chunks: &'a mpsc::Sender<Chunk>,
    chunk: Chunk,
    given: u64,
    rate: Option<f64>,
    began: Instant,
}

impl<'a> Sink<'a> {
    fn new(chunks: &'a mpsc::Sender<Chunk>, rate: Option<f64>) -> Self {
        Self { chunks, chunk: Chunk::new(), given: 0, rate, began: Instant::now() }
    }

    fn push(&mut self, ready: Ready) -> Result<(), Stop> {
        if let Some(rate) = self.rate {
            let due = Duration::try_from_secs_f64(self.given as f64 / rate).unwrap_or(Duration::MAX);
            let early = due.saturating_sub(self.began.elapsed());
            if !early.is_zero() {
                self.flush()?;
                std::thread::sleep(early.max(PAUSE_MIN));
            }
        }
        self.given += 1;
        self.chunk.push(ready);
        if self.chunk.len() >= CHUNK_EVENTS_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        if self.chunk.is_empty() {
            // Somebody who types should learn soon that nobody listens any more.
            return if self.chunks.is_closed() { Err(Stop::Enough) } else { Ok(()) };
        }
        self.chunks.blocking_send(std::mem::take(&mut self.chunk)).map_err(|_| Stop::Enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], jsonl: bool, count: Option<u64>) -> (Vec<u64>, Result<(), String>) {
        let (chunks, mut read) = mpsc::channel(64);
        let mut reading = Reading {
            source: Source::Stdin,
            jsonl,
            key_separator: None,
            count,
            rate: None,
            properties: Vec::new(),
            routing: Routing::of_test(4),
            read: Arc::default(),
        };
        let mut sink = Sink::new(&chunks, None);
        // A buffer of three bytes: lines span it in every way.
        let stop = reading.lines(BufReader::with_capacity(3, input), &mut sink);
        let _ = sink.flush();
        let said = match stop {
            Err(Stop::Bad(said)) => Err(said),
            _ => Ok(()),
        };
        let mut lines = Vec::new();
        while let Ok(chunk) = read.try_recv() {
            lines.extend(chunk.iter().map(|ready| ready.line));
        }
        (lines, said)
    }

    #[test]
    fn a_line_is_an_event_wherever_the_reads_end() {
        assert_eq!(read(b"one\ntwo\n\nfour", false, None), (vec![1, 2, 3, 4], Ok(())));
        assert_eq!(read(b"", false, None), (vec![], Ok(())));
        assert_eq!(read(b"a\nb\nc\n", false, Some(2)).0, [1, 2]);
        assert_eq!(read(b"", false, Some(0)).0, [0; 0]);
    }

    #[test]
    fn a_line_is_its_key_and_what_follows_the_first_separator() {
        assert_eq!(keyed(b"home-1:a:b", ':'), Ok(("home-1".to_owned(), &b"a:b"[..])));
        assert_eq!(keyed("k→\u{ff}".as_bytes(), '→'), Ok(("k".to_owned(), "\u{ff}".as_bytes())));
        assert_eq!(keyed(b"k\t", '\t'), Ok(("k".to_owned(), &b""[..])));
        for (line, said) in [(&b"none"[..], "no ':'"), (b":x", "is empty"), (b"\xff:x", "not UTF-8")] {
            assert!(keyed(line, ':').unwrap_err().contains(said), "{said}");
        }
    }

    #[test]
    fn the_lines_before_a_mistake_are_handed_over() {
        assert_eq!(read("\u{feff}{\"body\":1}\n".as_bytes(), true, None), (vec![1], Ok(())));
        let (lines, said) = read(br#"{"body":"\ud800"}"#, true, None);
        assert!(lines.is_empty() && said.unwrap_err().contains("the body is no text"));
        let (lines, said) = read(b"{\"body\":\"x\"}\n\n{\"bod\":1}\n{\"body\":\"y\"}\n", true, None);
        assert_eq!(lines, [1]);
        assert!(said.unwrap_err().starts_with("line 3: unknown field `bod`"));
    }
}
