//! What former runs on the same directory handled: kept in a file, so that what is lost or handled twice is counted over a
//! restart, too, and over a crash of the whole demo. It knows nothing of checkpoints: it is what they are checked against.
//!
//! A file of 64-byte slots, the first of which is the header. A span has one slot, whose end is moved with every event that
//! is handled. Writes reach the system before a call ends, so a killed demo has written down all it handled. They are not
//! synced: after a power cut, which another boot tells, counting begins anew.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use partita::hub::log::{Access, Disk, DiskFile, OsDisk, WriteMode};
use partita::store::MoveReason;
use partita::{Epoch, InstanceId, Timestamp};

use super::ledger::Span;
use super::moves::Move;

const SLOT: u64 = 64;
const MAGIC: [u8; 8] = *b"PARTDEM\n";
const VERSION: u32 = 1;

/// Which life of the hub, on which boot of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Life {
    pub(crate) store: [u8; 16],
    pub(crate) hub: u64,
    pub(crate) boot: [u8; 16],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    run: u32,
    /// How many processors were started by all runs.
    started: u32,
    /// Whether the run ended in good order.
    ended: bool,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Span {
        run: u32,
        partition: u32,
        instance: u32,
        epoch: u64,
        first: i64,
        last: i64,
    },
    /// One instance of a run, or the whole run, crashed.
    Crashed {
        run: u32,
        instance: Option<u32>,
    },
    Moved {
        partition: u32,
        epoch: u64,
        reason: MoveReason,
    },
    /// What lies before this event of a partition was handled by runs that are not in the file.
    Since {
        partition: u32,
        first: i64,
    },
}

/// What former runs left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Former {
    /// How many there were.
    pub(crate) runs: u32,
    /// How many processors they started.
    pub(crate) started: u32,
    /// Whether the last one ended without a word.
    pub(crate) crashed_last: bool,
    /// By partition, in the order of handling.
    pub(crate) spans: Vec<Vec<Span>>,
    pub(crate) moves: Vec<Move>,
    pub(crate) crashed: BTreeSet<InstanceId>,
    /// By partition: where counting begins.
    pub(crate) since: Vec<i64>,
}

/// The file, open for one run.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<dyn DiskFile>,
    header: Mutex<Header>,
    next: AtomicU64,
    failed: Mutex<Option<String>>,
}

/// The name of an instance by its number, and back.
pub(crate) fn instance(number: u32) -> InstanceId {
    InstanceId::new(format!("home-{number}"))
}

fn number(id: &InstanceId) -> u32 {
    id.as_str().strip_prefix("home-").and_then(|n| n.parse().ok()).unwrap_or(0)
}

impl Journal {
    /// Opens the file for a new run and tells what former ones left. If there is none, or it is of another life of the
    /// hub, or the machine lost power meanwhile, counting begins at `checkpoints`.
    pub(crate) fn open(path: &Path, life: Life, checkpoints: &[i64]) -> Result<(Self, Former), String> {
        let fail = |error: io::Error| format!("{} failed: {error}", path.display());
        let content = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            content => content.map_err(fail)?,
        };
        let old = match content.is_empty() {
            true => None,
            false => Some(Header::decode(&content).ok_or_else(|| damaged(path))?),
        };
        let counts = old.is_some_and(|old| {
            let same = (old.life.store, old.life.hub) == (life.store, life.hub);
            same && (old.ended || old.life.boot == life.boot)
        });
        let (run, started) = old.map_or((0, 0), |old| (old.run, old.started));
        let mut slots = match counts {
            true => read_slots(&content).ok_or_else(|| damaged(path))?,
            false => Vec::new(),
        };
        let crashed_last = counts && old.is_some_and(|old| !old.ended);
        let mut added = Vec::new();
        if crashed_last {
            added.push(Slot::Crashed { run, instance: None });
        }
        if !counts {
            let since = (0..).zip(checkpoints).filter(|(_, first)| **first > 0);
            added.extend(since.map(|(partition, first)| Slot::Since { partition, first: *first }));
        }
        let access = if counts { Access::Write(WriteMode::Buffered) } else { Access::Create };
        let header = Header { run: run + 1, started, ended: false, life };
        let journal = Self {
            file: OsDisk.open(path, access).map_err(fail)?,
            header: Mutex::new(header),
            next: AtomicU64::new(1 + slots.len() as u64),
            failed: Mutex::default(),
        };
        journal.write(0, &header.encode());
        for slot in added {
            journal.add(slot);
            slots.push(slot);
        }
        if let Some(why) = journal.failure() {
            return Err(format!("{} failed: {why}", path.display()));
        }
        let former = Former::of(&slots, checkpoints.len(), if counts { run } else { 0 }, started);
        Ok((journal, Former { crashed_last, ..former }))
    }

    /// Writes down a new span; its place, to extend it.
    pub(crate) fn span(&self, partition: usize, span: &Span) -> u64 {
        self.add(Slot::Span {
            run: self.header().run,
            partition: partition as u32,
            instance: number(&span.instance),
            epoch: span.epoch.0,
            first: span.first,
            last: span.last,
        })
    }

    /// Moves the end of a span.
    pub(crate) fn extend(&self, slot: u64, last: i64) {
        self.write(slot * SLOT + 32, &last.to_le_bytes());
    }

    /// Writes down a move.
    pub(crate) fn moved(&self, moved: &Move) {
        let (partition, epoch, reason) = (moved.partition as u32, moved.epoch.0, moved.reason);
        self.add(Slot::Moved { partition, epoch, reason });
    }

    /// Writes down that an instance crashed.
    pub(crate) fn crashed(&self, id: &InstanceId) {
        self.add(Slot::Crashed { run: self.header().run, instance: Some(number(id)) });
    }

    /// Writes down how many processors were started.
    pub(crate) fn started(&self, started: u32) {
        self.change(|header| header.started = started);
    }

    /// The run ended in good order.
    pub(crate) fn ended(&self) {
        self.change(|header| header.ended = true);
    }

    /// Why what is in the file cannot be trusted.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn header(&self) -> Header {
        *self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Header)) {
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut header);
        self.write(0, &header.encode());
    }

    fn add(&self, slot: Slot) -> u64 {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(at * SLOT, &slot.encode());
        at
    }

    fn write(&self, pos: u64, bytes: &[u8]) {
        let why = match self.file.write_at(bytes, pos) {
            Ok(written) if written == bytes.len() => return,
            Ok(_) => "no space left".to_owned(),
            Err(error) => error.to_string(),
        };
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

fn damaged(path: &Path) -> String {
    format!("{} is damaged: remove it, and counting begins anew", path.display())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl Header {
    fn encode(&self) -> [u8; SLOT as usize] {
        let mut out = [0; SLOT as usize];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&(VERSION as u16).to_le_bytes());
        out[10] = u8::from(self.ended);
        out[12..16].copy_from_slice(&self.run.to_le_bytes());
        out[16..20].copy_from_slice(&self.started.to_le_bytes());
        out[24..40].copy_from_slice(&self.life.store);
        out[40..48].copy_from_slice(&self.life.hub.to_le_bytes());
        out[48..64].copy_from_slice(&self.life.boot);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SLOT as usize)?;
        let known = bytes[..8] == MAGIC && u32_at(bytes, 8) & 0xffff == VERSION && bytes[10] <= 1;
        known.then(|| Self {
            run: u32_at(bytes, 12),
            started: u32_at(bytes, 16),
            ended: bytes[10] == 1,
            life: Life {
                store: std::array::from_fn(|i| bytes[24 + i]),
                hub: u64_at(bytes, 40),
                boot: std::array::from_fn(|i| bytes[48 + i]),
            },
        })
    }
}

impl Slot {
    fn encode(&self) -> [u8; SLOT as usize] {
        let mut out = [0; SLOT as usize];
        let (kind, run, partition, extra, epoch, first, last) = match *self {
            Self::Span { run, partition, instance, epoch, first, last } => {
                (1, run, partition, instance, epoch, first, last)
            }
            Self::Crashed { run, instance } => (2, run, 0, instance.unwrap_or(u32::MAX), 0, 0, 0),
            Self::Moved { partition, epoch, reason } => {
                let reason = MoveReason::ALL.iter().position(|known| *known == reason);
                (3, 0, partition, reason.map_or(u32::MAX, |at| at as u32), epoch, 0, 0)
            }
            Self::Since { partition, first } => (4, 0, partition, 0, 0, first, 0),
        };
        out[0] = kind;
        out[4..8].copy_from_slice(&u32::to_le_bytes(run));
        out[8..12].copy_from_slice(&u32::to_le_bytes(partition));
        out[12..16].copy_from_slice(&u32::to_le_bytes(extra));
        out[16..24].copy_from_slice(&u64::to_le_bytes(epoch));
        out[24..32].copy_from_slice(&i64::to_le_bytes(first));
        out[32..40].copy_from_slice(&i64::to_le_bytes(last));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (run, partition, extra, epoch) =
            (u32_at(bytes, 4), u32_at(bytes, 8), u32_at(bytes, 12), u64_at(bytes, 16));
        let (first, last) = (u64_at(bytes, 24).cast_signed(), u64_at(bytes, 32).cast_signed());
        Some(match bytes[0] {
            1 => Self::Span { run, partition, instance: extra, epoch, first, last },
            2 => Self::Crashed { run, instance: (extra != u32::MAX).then_some(extra) },
            3 => Self::Moved { partition, epoch, reason: *MoveReason::ALL.get(extra as usize)? },
            4 => Self::Since { partition, first },
            _ => return None,
        })
    }
}

/// A slot of zeros is one that the killed demo had reserved and not written.
fn read_slots(content: &[u8]) -> Option<Vec<Slot>> {
    let slots = content[SLOT as usize..].chunks_exact(SLOT as usize);
    let written = slots.filter(|slot| slot.iter().any(|byte| *byte != 0));
    written.map(Slot::decode).collect()
}

impl Former {
    fn of(slots: &[Slot], partitions: usize, runs: u32, started: u32) -> Self {
        let mut former = Self {
            runs,
            started,
            spans: vec![Vec::new(); partitions],
            since: vec![0; partitions],
            ..Self::default()
        };
        for slot in slots {
            match *slot {
                Slot::Span { run, partition, instance: number, epoch, first, last } => {
                    let span = Span {
                        run,
                        slot: None,
                        first,
                        last,
                        instance: instance(number),
                        epoch: Epoch(epoch),
                        enqueued: Timestamp(0),
                        begun: Default::default(),
                        ended: Default::default(),
                    };
                    if let Some(spans) = former.spans.get_mut(partition as usize) {
                        spans.push(span);
                    }
                }
                Slot::Crashed { instance: Some(number), .. } => {
                    former.crashed.insert(instance(number));
                }
                Slot::Crashed { run, instance: None } => {
                    let all = former.spans.iter().flatten().filter(|span| span.run == run);
                    former.crashed.extend(all.map(|span| span.instance.clone()).collect::<Vec<_>>());
                }
                Slot::Moved { partition, epoch, reason } => former.moves.push(Move {
                    partition: partition as usize,
                    from: None,
                    to: None,
                    epoch: Epoch(epoch),
                    reason,
                    at: Default::default(),
                    opened: None,
                }),
                Slot::Since { partition, first } => {
                    if let Some(since) = former.since.get_mut(partition as usize) {
                        *since = first;
                    }
                }
            }
        }
        former
    }
}

/// Which boot of the machine this is, where the system tells.
pub(crate) fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string(PathBuf::from("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&hex, 16).unwrap_or(0).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{moved, span};
    use super::*;

    const LIFE: Life = Life { store: [7; 16], hub: 3, boot: [1; 16] };

    fn open(dir: &tempfile::TempDir, life: Life, checkpoints: &[i64]) -> (Journal, Former) {
        Journal::open(&dir.path().join("ledger"), life, checkpoints).unwrap()
    }

    fn ranges(former: &Former) -> Vec<(i64, i64, String)> {
        let all = former.spans.iter().flatten();
        all.map(|span| (span.first, span.last, span.instance.to_string())).collect()
    }

    #[test]
    fn a_killed_run_has_written_down_all_that_it_handled() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, former) = open(&dir, LIFE, &[0, 5]);
        assert_eq!((former.runs, former.started, former.crashed_last), (0, 0, false));
        assert_eq!(former.since, [0, 5]);
        journal.started(2);
        let slot = journal.span(1, &span("home-2", 4, 5..=5));
        (6..=9).for_each(|last| journal.extend(slot, last));
        journal.moved(&moved(1, 4, MoveReason::TakenFromDead));
        drop(journal);

        let (journal, former) = open(&dir, LIFE, &[0, 9]);
        assert_eq!((former.runs, former.started, former.crashed_last), (1, 2, true));
        assert_eq!(ranges(&former), [(5, 9, "home-2".to_owned())]);
        assert_eq!(former.since, [0, 5], "it began there, wherever checkpoints are by now");
        assert!(former.crashed.contains(&InstanceId::new("home-2")));
        assert_eq!((former.moves[0].epoch, former.moves[0].reason), (Epoch(4), MoveReason::TakenFromDead));
        journal.span(0, &span("home-3", 1, 0..=7));
        journal.ended();
        drop(journal);

        let (_, former) = open(&dir, LIFE, &[8, 9]);
        assert_eq!((former.runs, former.crashed_last), (2, false));
        assert_eq!(ranges(&former), [(0, 7, "home-3".to_owned()), (5, 9, "home-2".to_owned())]);
        assert!(!former.crashed.contains(&InstanceId::new("home-3")));
    }

    #[test]
    fn another_life_of_the_hub_or_a_power_cut_begin_anew() {
        let rebooted = Life { boot: [2; 16], ..LIFE };
        let other_hub = Life { hub: 4, ..LIFE };
        for (life, ended, counts) in
            [(rebooted, false, false), (rebooted, true, true), (other_hub, true, false), (LIFE, false, true)]
        {
            let dir = tempfile::tempdir().unwrap();
            let (journal, _) = open(&dir, LIFE, &[0]);
            journal.started(3);
            journal.span(0, &span("home-1", 1, 0..=9));
            if ended {
                journal.ended();
            }
            drop(journal);
            let (_, former) = open(&dir, life, &[8]);
            assert_eq!(former.spans[0].len(), usize::from(counts), "{life:?}");
            assert_eq!(former.since, [if counts { 0 } else { 8 }], "{life:?}");
            assert_eq!(former.started, 3, "no name is used twice");
        }
    }

    #[test]
    fn what_is_no_journal_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        std::fs::write(&path, "my notes").unwrap();
        let error = Journal::open(&path, LIFE, &[0]).unwrap_err();
        assert!(error.contains("is damaged: remove it"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes");
    }
}
