//! The form of the files: a line per field, `name value`. A field that is none has no line.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::io::{self, ErrorKind};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use partita_core::model::{
    Epoch, Incarnation, InstanceId, Offset, PartitionId, Position, SequenceNumber, StreamId, StreamPosition,
    Timestamp,
};
use partita_core::store::{
    CheckpointRecord, FailingPartition, InstanceDetails, InstanceRecord, InstanceState, MoveReason,
    MoveRecord, Op, Ownership, Resume, Version,
};

/// An instance record with the time of its last heartbeat.
pub(crate) struct StampedInstance {
    pub(crate) record: InstanceRecord,
    pub(crate) stamp: Timestamp,
    pub(crate) version: Version,
}

/// A name as a file's name. Capitals are escaped too: not every file system tells them from small letters.
pub(crate) fn file_name(name: &str) -> String {
    let kept = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let escaped = escape(name, kept);
    if escaped.is_empty() { "%".to_owned() } else { escaped }
}

pub(crate) fn of_instance(stamped: &StampedInstance) -> String {
    let record = &stamped.record;
    let mut lines = Lines::default();
    lines.put("incarnation", of_incarnation(&record.incarnation));
    lines.put("host", word(&record.host));
    lines.put("started", record.started.millis());
    lines.put("stopping", record.stopping);
    let declines: Vec<String> = record.declines.iter().map(|partition| word(partition.as_str())).collect();
    lines.put("declines", declines.join(" "));
    lines.put("ttl_ms", record.ttl.as_millis().to_string());
    lines.put("dead", record.state == InstanceState::Dead);
    lines.put("beat", record.beat);
    let InstanceDetails { stream, initial_position, failing } = &record.details;
    lines.put_some("stream", stream.as_ref().map(|stream| word(stream.as_str())));
    lines.put_some("initial_position", initial_position.as_ref());
    let failing: Vec<String> = failing.iter().map(of_failing).collect();
    lines.put("failing", failing.join(" "));
    lines.put("stamp", stamped.stamp.millis());
    lines.put("version", of_version(&stamped.version));
    lines.0
}

pub(crate) fn instance(content: &str) -> io::Result<StampedInstance> {
    let fields = Fields::of(content);
    let declines = fields.get("declines")?.split(' ').filter(|name| !name.is_empty());
    let record = InstanceRecord {
        incarnation: incarnation(fields.get("incarnation")?)?,
        host: Arc::from(unescape(fields.get("host")?)?),
        started: Timestamp(fields.parse("started")?),
        ttl: Duration::from_millis(fields.parse("ttl_ms")?),
        stopping: fields.parse("stopping")?,
        declines: declines.map(|name| Ok(PartitionId::new(unescape(name)?))).collect::<io::Result<_>>()?,
        state: if fields.parse("dead")? { InstanceState::Dead } else { InstanceState::Live },
        beat: fields.parse("beat")?,
        details: InstanceDetails {
            stream: fields.find("stream").map(|stream| unescape(stream).map(StreamId::new)).transpose()?,
            initial_position: fields.find("initial_position").map(number).transpose()?,
            failing: fields
                .get("failing")?
                .split(' ')
                .filter(|one| !one.is_empty())
                .map(failing)
                .collect::<io::Result<_>>()?,
        },
    };
    Ok(StampedInstance { record, stamp: Timestamp(fields.parse("stamp")?), version: fields.version()? })
}

/// A word, its fields apart by `|`.
fn of_failing(failing: &FailingPartition) -> String {
    let FailingPartition { partition, since, attempts, retry_at, sequence, error } = failing;
    let sequence = sequence.map(|sequence| sequence.to_string()).unwrap_or_default();
    let (partition, error) = (word(partition.as_str()), word(error));
    format!("{partition}|{}|{attempts}|{}|{sequence}|{error}", since.millis(), retry_at.millis())
}

fn failing(text: &str) -> io::Result<FailingPartition> {
    let fields: Vec<&str> = text.split('|').collect();
    let [partition, since, attempts, retry_at, sequence, error] = fields[..] else { return Err(bad(text)) };
    Ok(FailingPartition {
        partition: PartitionId::new(unescape(partition)?),
        since: Timestamp(number(since)?),
        attempts: number(attempts)?,
        retry_at: Timestamp(number(retry_at)?),
        sequence: if sequence.is_empty() { None } else { Some(SequenceNumber(number(sequence)?)) },
        error: Arc::from(unescape(error)?),
    })
}

pub(crate) fn of_ownership(ownership: &Ownership) -> String {
    let mut lines = Lines::default();
    lines.put("partition", word(ownership.partition.as_str()));
    lines.put_some("owner", ownership.owner.as_ref().map(of_incarnation));
    lines.put("epoch", ownership.epoch);
    lines.put_some("next", ownership.next.as_ref().map(of_incarnation));
    lines.put("since", ownership.since.millis());
    lines.put("reason", ownership.reason);
    lines.put("op", of_op(&ownership.op));
    lines.put("version", of_version(&ownership.version));
    lines.0
}

pub(crate) fn ownership(content: &str) -> io::Result<Ownership> {
    let fields = Fields::of(content);
    Ok(Ownership {
        partition: PartitionId::new(unescape(fields.get("partition")?)?),
        owner: fields.find("owner").map(incarnation).transpose()?,
        epoch: Epoch(fields.parse("epoch")?),
        next: fields.find("next").map(incarnation).transpose()?,
        since: Timestamp(fields.parse("since")?),
        reason: reason(fields.get("reason")?)?,
        op: op(fields.get("op")?)?,
        version: fields.version()?,
    })
}

pub(crate) fn of_checkpoint(record: &CheckpointRecord) -> String {
    let mut lines = Lines::default();
    lines.put("partition", word(record.partition.as_str()));
    lines.put("epoch", record.epoch);
    lines.put_some("resume", record.resume.as_ref().map(of_resume));
    lines.put_some("stream", record.stream.as_ref().map(|stream| word(stream.as_str())));
    lines.put("time", record.time.millis());
    lines.put("op", of_op(&record.op));
    lines.put("version", of_version(&record.version));
    lines.0
}

pub(crate) fn checkpoint(content: &str) -> io::Result<CheckpointRecord> {
    let fields = Fields::of(content);
    Ok(CheckpointRecord {
        partition: PartitionId::new(unescape(fields.get("partition")?)?),
        epoch: Epoch(fields.parse("epoch")?),
        resume: fields.find("resume").map(resume).transpose()?,
        stream: fields.find("stream").map(|stream| unescape(stream).map(StreamId::new)).transpose()?,
        time: Timestamp(fields.parse("time")?),
        op: op(fields.get("op")?)?,
        version: fields.version()?,
    })
}

/// A move is one line, its fields apart by `|`.
pub(crate) fn of_moved(moved: &MoveRecord) -> String {
    let name = |who: &Option<Incarnation>| who.as_ref().map(of_incarnation).unwrap_or_default();
    let partition = word(moved.partition.as_str());
    let (from, to) = (name(&moved.from), name(&moved.to));
    format!("{partition}|{from}|{to}|{}|{}|{}", moved.epoch, moved.reason, moved.time.millis())
}

pub(crate) fn moved(line: &str) -> io::Result<MoveRecord> {
    let name = |who: &str| if who.is_empty() { Ok(None) } else { incarnation(who).map(Some) };
    let fields: Vec<&str> = line.split('|').collect();
    let [partition, from, to, epoch, why, time] = fields[..] else { return Err(bad(line)) };
    Ok(MoveRecord {
        partition: PartitionId::new(unescape(partition)?),
        from: name(from)?,
        to: name(to)?,
        epoch: Epoch(number(epoch)?),
        reason: reason(why)?,
        time: Timestamp(number(time)?),
    })
}

fn of_incarnation(incarnation: &Incarnation) -> String {
    format!("{:032x} {}", incarnation.nonce(), word(incarnation.id().as_str()))
}

fn incarnation(text: &str) -> io::Result<Incarnation> {
    let (nonce, id) = text.split_once(' ').ok_or_else(|| bad(text))?;
    let nonce = u128::from_str_radix(nonce, 16).map_err(|_| bad(text))?;
    Ok(Incarnation::new(InstanceId::new(unescape(id)?), nonce))
}

fn of_op(op: &Op) -> String {
    format!("{} {}", op.number, of_incarnation(&op.by))
}

fn op(text: &str) -> io::Result<Op> {
    let (count, by) = text.split_once(' ').ok_or_else(|| bad(text))?;
    Ok(Op { by: incarnation(by)?, number: number(count)? })
}

fn of_resume(resume: &Resume) -> String {
    let which = |inclusive: &bool| if *inclusive { "at" } else { "behind" };
    match resume {
        Resume::After(last) => {
            let time = last.enqueued_time.map(|time| format!(" {}", time.millis())).unwrap_or_default();
            format!("after {} {}{time}", last.sequence, word(&last.offset.to_string()))
        }
        Resume::At(Position::Earliest) => "earliest".to_owned(),
        Resume::At(Position::Latest) => "latest".to_owned(),
        Resume::At(Position::Time(time)) => format!("time {}", time.millis()),
        Resume::At(Position::Sequence { sequence, inclusive }) => {
            format!("sequence {} {sequence}", which(inclusive))
        }
        Resume::At(Position::Offset { offset, inclusive }) => {
            format!("offset {} {}", which(inclusive), word(&offset.to_string()))
        }
    }
}

fn resume(text: &str) -> io::Result<Resume> {
    let words: Vec<&str> = text.split(' ').collect();
    let position = match words[..] {
        ["after", sequence, offset, ref time @ ..] => {
            let sequence = SequenceNumber(number(sequence)?);
            let enqueued_time = time.first().map(|time| number(time).map(Timestamp)).transpose()?;
            let offset = Offset::parse(&unescape(offset)?);
            return Ok(Resume::After(StreamPosition { sequence, offset, enqueued_time }));
        }
        ["earliest"] => Position::Earliest,
        ["latest"] => Position::Latest,
        ["time", time] => Position::Time(Timestamp(number(time)?)),
        ["sequence", which, sequence] => {
            Position::Sequence { sequence: SequenceNumber(number(sequence)?), inclusive: which == "at" }
        }
        ["offset", which, offset] => {
            Position::Offset { offset: Offset::parse(&unescape(offset)?), inclusive: which == "at" }
        }
        _ => return Err(bad(text)),
    };
    Ok(Resume::At(position))
}

fn reason(text: &str) -> io::Result<MoveReason> {
    MoveReason::parse(text).ok_or_else(|| bad(text))
}

fn of_version(version: &Version) -> &str {
    version.as_tag().unwrap_or_default()
}

/// Text without spaces and line breaks, readable otherwise.
fn word(text: &str) -> String {
    escape(text, |byte| byte.is_ascii_graphic() && byte != b'%' && byte != b'|')
}

fn escape(text: &str, kept: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if kept(byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02x}");
        }
    }
    escaped
}

fn unescape(text: &str) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(|| bad(text))?;
        let digits = std::str::from_utf8(digits).map_err(|_| bad(text))?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad(text))?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| bad(text))
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn put(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn put_some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }
}

struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    fn of(content: &'a str) -> Self {
        Self(content.lines().filter_map(|line| line.split_once(' ')).collect())
    }

    fn find(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    fn get(&self, name: &str) -> io::Result<&'a str> {
        self.find(name).ok_or_else(|| bad(name))
    }

    fn parse<T: FromStr>(&self, name: &str) -> io::Result<T> {
        number(self.get(name)?)
    }

    fn version(&self) -> io::Result<Version> {
        self.get("version").map(Version::tag)
    }
}

fn number<T: FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| bad(text))
}

fn bad(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not a record of this store: {text:?}"))
}
