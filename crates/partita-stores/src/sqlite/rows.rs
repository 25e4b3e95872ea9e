//! Records as rows: the form that this store owns. Whatever does not read back as written is damage.

use std::sync::Arc;
use std::time::Duration;

use partita_core::model::{
    Epoch, Incarnation, InstanceId, Offset, PartitionId, Position, SequenceNumber, StreamId, StreamPosition,
    Timestamp,
};
use partita_core::store::{
    CheckpointRecord, FailingPartition, InstanceDetails, InstanceRecord, InstanceSeen, InstanceState,
    MoveReason, MoveRecord, Op, Ownership, Resume, Version,
};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};

use super::clock::Stamp;

/// Counters are unsigned; SQLite's numbers are not. The bits are kept.
pub(super) fn stored(number: u64) -> i64 {
    number.cast_signed()
}

pub(super) fn loaded(number: i64) -> u64 {
    number.cast_unsigned()
}

pub(super) fn version(row: &Row<'_>, column: &str) -> Result<Version> {
    row.get(column).map(|number| Version::number(loaded(number)))
}

/// The number of a version that this store gave.
pub(super) fn version_number(version: &Version) -> u64 {
    version.as_number().unwrap_or(0)
}

pub(super) fn of_incarnation(incarnation: &Incarnation) -> String {
    format!("{}#{:032x}", incarnation.id(), incarnation.nonce())
}

fn incarnation(text: &str) -> Option<Incarnation> {
    // An id may have a '#' in it; the nonce has none.
    let (id, nonce) = text.rsplit_once('#')?;
    Some(Incarnation::new(InstanceId::new(id), u128::from_str_radix(nonce, 16).ok()?))
}

fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(|text| format!("{}:{text}", text.len())).collect()
}

fn texts(mut list: &str) -> Option<Vec<&str>> {
    let mut texts = Vec::new();
    while !list.is_empty() {
        let (length, rest) = list.split_once(':')?;
        let (text, rest) = rest.split_at_checked(length.parse().ok()?)?;
        texts.push(text);
        list = rest;
    }
    Some(texts)
}

pub(super) fn of_partitions(partitions: &[PartitionId]) -> String {
    of_texts(partitions.iter().map(PartitionId::as_str))
}

fn partitions(list: &str) -> Option<Vec<PartitionId>> {
    Some(texts(list)?.into_iter().map(PartitionId::new).collect())
}

/// The column `failing`; null if nothing fails, as nearly always.
pub(super) fn of_failing(failing: &[FailingPartition]) -> Option<String> {
    let one = |failing: &FailingPartition| {
        let FailingPartition { partition, since, attempts, retry_at, sequence, error } = failing;
        let numbers =
            [since.millis(), i64::from(*attempts), retry_at.millis()].map(|number| number.to_string());
        let sequence = sequence.map(|sequence| sequence.to_string()).unwrap_or_default();
        let [since, attempts, retry_at] = &numbers;
        of_texts([partition.as_str(), since, attempts, retry_at, &sequence, error])
    };
    (!failing.is_empty()).then(|| failing.iter().map(one).collect())
}

fn failing(list: Option<&str>) -> Option<Vec<FailingPartition>> {
    let texts = texts(list.unwrap_or_default())?;
    let all = texts.chunks(6).map(|one| {
        let [partition, since, attempts, retry_at, sequence, error] = *one else { return None };
        Some(FailingPartition {
            partition: PartitionId::new(partition),
            since: Timestamp(since.parse().ok()?),
            attempts: attempts.parse().ok()?,
            retry_at: Timestamp(retry_at.parse().ok()?),
            sequence: match sequence {
                "" => None,
                sequence => Some(SequenceNumber(sequence.parse().ok()?)),
            },
            error: Arc::from(error),
        })
    });
    all.collect()
}

/// The columns `resume`, `number` and `offset`.
pub(super) fn of_resume(resume: Option<&Resume>) -> (Option<&'static str>, Option<i64>, Option<String>) {
    let Some(resume) = resume else { return (None, None, None) };
    let (kind, number, offset) = match resume {
        Resume::After(last) => ("handled", Some(last.sequence.0), Some(&last.offset)),
        Resume::At(Position::Earliest) => ("earliest", None, None),
        Resume::At(Position::Latest) => ("latest", None, None),
        Resume::At(Position::Offset { offset, inclusive: true }) => ("at offset", None, Some(offset)),
        Resume::At(Position::Offset { offset, inclusive: false }) => ("after offset", None, Some(offset)),
        Resume::At(Position::Sequence { sequence, inclusive: true }) => {
            ("at sequence", Some(sequence.0), None)
        }
        Resume::At(Position::Sequence { sequence, inclusive: false }) => {
            ("after sequence", Some(sequence.0), None)
        }
        Resume::At(Position::Time(time)) => ("time", Some(time.millis()), None),
    };
    (Some(kind), number, offset.map(Offset::to_string))
}

fn resume(
    kind: &str,
    number: Option<i64>,
    offset: Option<&str>,
    enqueued_time: Option<Timestamp>,
) -> Option<Resume> {
    let sequence = number.map(SequenceNumber);
    let offset = offset.map(Offset::parse);
    Some(match kind {
        "handled" => Resume::After(StreamPosition { sequence: sequence?, offset: offset?, enqueued_time }),
        "earliest" => Resume::At(Position::Earliest),
        "latest" => Resume::At(Position::Latest),
        "at offset" => Resume::At(Position::at_offset(offset?)),
        "after offset" => Resume::At(Position::after_offset(offset?)),
        "at sequence" => Resume::At(Position::at_sequence(sequence?)),
        "after sequence" => Resume::At(Position::after_sequence(sequence?)),
        "time" => Resume::At(Position::Time(Timestamp(number?))),
        _ => return None,
    })
}

/// The column `enqueued`.
pub(super) fn of_enqueued(resume: Option<&Resume>) -> Option<i64> {
    match resume {
        Some(Resume::After(last)) => last.enqueued_time.map(Timestamp::millis),
        _ => None,
    }
}

/// An instance's row: the record, when it last beat and, if it is dead, when it died.
#[derive(Debug)]
pub(super) struct InstanceRow {
    pub(super) record: InstanceRecord,
    pub(super) version: Version,
    pub(super) beat_at: Stamp,
    pub(super) died_at: Option<Stamp>,
}

impl InstanceRow {
    pub(super) fn load(row: &Row<'_>) -> Result<Self> {
        let beat_at = Stamp { boot: row.get("boot")?, nanos: row.get("stamp")? };
        let died_at = match row.get("died")? {
            Some(nanos) => Some(Stamp { boot: row.get("died_boot")?, nanos }),
            None => None,
        };
        let declines: String = row.get("declines")?;
        let record = InstanceRecord {
            incarnation: named(row, "incarnation")?,
            host: row.get::<_, Arc<str>>("host")?,
            started: Timestamp(row.get("started")?),
            ttl: Duration::from_millis(loaded(row.get("ttl_ms")?)),
            stopping: row.get("stopping")?,
            declines: sound(partitions(&declines), "declines")?,
            state: if died_at.is_some() { InstanceState::Dead } else { InstanceState::Live },
            beat: loaded(row.get("beat")?),
            details: InstanceDetails {
                stream: row.get::<_, Option<String>>("stream")?.map(StreamId::from),
                initial_position: match row.get::<_, Option<String>>("initial")? {
                    Some(initial) => Some(sound(initial.parse().ok(), "initial")?),
                    None => None,
                },
                failing: sound(failing(row.get::<_, Option<String>>("failing")?.as_deref()), "failing")?,
            },
        };
        Ok(Self { record, version: version(row, "version")?, beat_at, died_at })
    }

    pub(super) fn seen(&self, now: &Stamp) -> InstanceSeen {
        InstanceSeen {
            record: self.record.clone(),
            version: self.version.clone(),
            age: now.since(&self.beat_at),
        }
    }
}

pub(super) fn ownership(row: &Row<'_>) -> Result<Ownership> {
    Ok(Ownership {
        partition: PartitionId::from(row.get::<_, String>("partition")?),
        owner: perhaps_named(row, "owner")?,
        epoch: Epoch(loaded(row.get("epoch")?)),
        next: perhaps_named(row, "next")?,
        since: Timestamp(row.get("since")?),
        reason: reason(row)?,
        op: op(row)?,
        version: version(row, "version")?,
    })
}

pub(super) fn checkpoint(row: &Row<'_>) -> Result<CheckpointRecord> {
    let resume = match row.get::<_, Option<String>>("resume")? {
        None => None,
        Some(kind) => {
            let offset: Option<String> = row.get("offset")?;
            let enqueued = row.get::<_, Option<i64>>("enqueued")?.map(Timestamp);
            Some(sound(self::resume(&kind, row.get("number")?, offset.as_deref(), enqueued), "resume")?)
        }
    };
    Ok(CheckpointRecord {
        partition: PartitionId::from(row.get::<_, String>("partition")?),
        epoch: Epoch(loaded(row.get("epoch")?)),
        resume,
        stream: row.get::<_, Option<String>>("stream")?.map(StreamId::from),
        time: Timestamp(row.get("time")?),
        op: op(row)?,
        version: version(row, "version")?,
    })
}

pub(super) fn moved(row: &Row<'_>) -> Result<MoveRecord> {
    Ok(MoveRecord {
        partition: PartitionId::from(row.get::<_, String>("partition")?),
        from: perhaps_named(row, "from_owner")?,
        to: perhaps_named(row, "to_owner")?,
        epoch: Epoch(loaded(row.get("epoch")?)),
        reason: reason(row)?,
        time: Timestamp(row.get("time")?),
    })
}

fn op(row: &Row<'_>) -> Result<Op> {
    Ok(Op { by: named(row, "op_by")?, number: loaded(row.get("op_number")?) })
}

fn reason(row: &Row<'_>) -> Result<MoveReason> {
    let text: String = row.get("reason")?;
    sound(MoveReason::parse(&text), "reason")
}

fn named(row: &Row<'_>, column: &str) -> Result<Incarnation> {
    let text: String = row.get(column)?;
    sound(incarnation(&text), column)
}

fn perhaps_named(row: &Row<'_>, column: &str) -> Result<Option<Incarnation>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| sound(incarnation(&text), column)).transpose()
}

fn sound<T>(value: Option<T>, column: &str) -> Result<T> {
    value.ok_or_else(|| {
        let why = format!("column {column} holds something else than it should");
        Error::FromSqlConversionFailure(0, Type::Text, why.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_were() {
        for id in ["a", "", "a#b", "#", "a#00000000000000000000000000000001", "日本", "a\0b"] {
            let named = Incarnation::new(InstanceId::new(id), 0xab << 100);
            assert_eq!(incarnation(&of_incarnation(&named)).as_ref(), Some(&named));
        }
        assert_eq!(incarnation("no nonce"), None);
        assert_eq!(incarnation("a#xyz"), None);
    }

    #[test]
    fn lists_of_partitions_read_back_as_they_were() {
        let list: Vec<PartitionId> = ["0", "", "1:2", ":", "日本", "a\nb"].map(PartitionId::from).to_vec();
        assert_eq!(partitions(&of_partitions(&list)), Some(list));
        assert_eq!(partitions(""), Some(Vec::new()));
        for damaged in ["1", "2:a", "x:a", "1:日"] {
            assert_eq!(partitions(damaged), None, "{damaged}");
        }
    }
}
