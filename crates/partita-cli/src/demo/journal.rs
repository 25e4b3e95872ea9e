//! What former runs on the same directory did: kept in a file, so that what is lost or handled twice is counted over a restart,
//! too, and over a crash of the whole demo. What each processor handled is in its [`book`].

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use partita::InstanceId;

use super::book;
use super::ledger::Span;
use super::moves::Move;
use super::slots::{SLOT, Slot, SlotFile, decode_all, instance, number, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PARTDEM\n";
const VERSION: u16 = 2;
const FILE: &str = "ledger";

/// Which life of the hub, on which boot of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Life {
    pub(crate) store: [u8; 16],
    pub(crate) hub: u64,
    pub(crate) boot: [u8; 16],
}

/// The first slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    version: u16,
    run: u32,
    /// How many processors were started by all runs.
    started: u32,
    /// Whether the run ended in good order.
    ended: bool,
    life: Life,
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
    file: SlotFile,
    header: Mutex<Header>,
    failed: Mutex<Option<String>>,
}

impl Journal {
    /// Opens the journal of a directory for a new run and tells what former ones left. If there is none, or it is of another life
    /// of the hub, or the machine lost power meanwhile, counting begins at `checkpoints`.
    pub(crate) fn open(data: &Path, life: Life, checkpoints: &[i64]) -> Result<(Self, Former), String> {
        let path = &data.join(FILE);
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
            same && old.version == VERSION && (old.ended || old.life.boot == life.boot)
        });
        let (run, started) = old.map_or((0, 0), |old| (old.run, old.started));
        let mut slots = match counts {
            true => decode_all(&content[SLOT..]).ok_or_else(|| damaged(path))?,
            false => Vec::new(),
        };
        let places = if counts { (content.len() / SLOT) as u64 } else { 1 };
        if counts {
            for number in 1..=started {
                slots.extend(book::read(data, number)?);
            }
        } else {
            book::clear(data).map_err(fail)?;
        }
        book::prepare(data).map_err(fail)?;
        let crashed_last = counts && old.is_some_and(|old| !old.ended);
        let mut added = Vec::new();
        if crashed_last {
            added.push(Slot::Crashed { run, instance: None });
        }
        if !counts {
            let since = checkpoints.iter().enumerate().filter(|(_, first)| **first > 0);
            added.extend(since.map(|(partition, first)| Slot::Since { partition, first: *first }));
        }
        let header = Header { version: VERSION, run: run + 1, started, ended: false, life };
        // What was there goes only once the rest of the directory is known to be good.
        let file = match counts {
            true => SlotFile::resume(path, places),
            false => SlotFile::create(path).and_then(|file| file.add(&header.encode()).map(|_| file)),
        };
        let file = file.map_err(fail)?;
        file.put(0, &header.encode()).map_err(fail)?;
        for slot in added {
            file.add(&slot.encode()).map_err(fail)?;
            slots.push(slot);
        }
        let former = Former::of(slots, checkpoints.len(), if counts { run } else { 0 }, started);
        let journal = Self { file, header: Mutex::new(header), failed: Mutex::default() };
        Ok((journal, Former { crashed_last, ..former }))
    }

    /// Writes down a move that may be in no book.
    pub(crate) fn moved(&self, moved: &Move) {
        self.add(&Slot::Moved(moved.clone()));
    }

    /// Writes down that an instance crashed or was frozen.
    pub(crate) fn crashed(&self, id: &InstanceId) {
        let run = self.header.lock().unwrap_or_else(PoisonError::into_inner).run;
        self.add(&Slot::Crashed { run, instance: Some(number(id)) });
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

    fn change(&self, change: impl FnOnce(&mut Header)) {
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut header);
        self.check(self.file.put(0, &header.encode()));
    }

    fn add(&self, slot: &Slot) {
        self.check(self.file.add(&slot.encode()).map(drop));
    }

    fn check(&self, done: io::Result<()>) {
        if let Err(error) = done {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(error.to_string());
        }
    }
}

fn damaged(path: &Path) -> String {
    format!("{} is damaged: remove it, and counting begins anew", path.display())
}

impl Header {
    fn encode(&self) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.version.to_le_bytes());
        out[10] = u8::from(self.ended);
        out[12..16].copy_from_slice(&self.run.to_le_bytes());
        out[16..20].copy_from_slice(&self.started.to_le_bytes());
        out[24..40].copy_from_slice(&self.life.store);
        out[40..48].copy_from_slice(&self.life.hub.to_le_bytes());
        out[48..64].copy_from_slice(&self.life.boot);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SLOT)?;
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        let known = bytes[..8] == MAGIC && (1..=VERSION).contains(&version) && bytes[10] <= 1;
        known.then(|| Self {
            version,
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

impl Former {
    fn of(slots: Vec<Slot>, partitions: usize, runs: u32, started: u32) -> Self {
        let mut former = Self {
            runs,
            started,
            spans: vec![Vec::new(); partitions],
            since: vec![0; partitions],
            ..Self::default()
        };
        let mut crashed_runs = BTreeSet::new();
        for slot in slots {
            match slot {
                Slot::Handled { partition, span } => {
                    former.spans.get_mut(partition).into_iter().for_each(|spans| spans.push(span.clone()));
                }
                Slot::Crashed { instance: Some(number), .. } => {
                    former.crashed.insert(instance(number));
                }
                Slot::Crashed { run, instance: None } => {
                    crashed_runs.insert(run);
                }
                Slot::Moved(moved) => former.moves.push(moved),
                Slot::Since { partition, first } => {
                    former.since.get_mut(partition).into_iter().for_each(|since| *since = first);
                }
                Slot::Opened { .. } => {}
            }
        }
        for spans in &mut former.spans {
            spans.sort_by_key(|span| (span.run, span.begun));
        }
        let of_crashed = former.spans.iter().flatten().filter(|span| crashed_runs.contains(&span.run));
        former.crashed.extend(of_crashed.map(|span| span.instance.clone()).collect::<Vec<_>>());
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
    use partita::Epoch;
    use partita::store::MoveReason;

    use super::super::testing::{moved, span};
    use super::*;

    const LIFE: Life = Life { store: [7; 16], hub: 3, boot: [1; 16] };

    fn open(dir: &tempfile::TempDir, life: Life, checkpoints: &[i64]) -> (Journal, Former) {
        Journal::open(dir.path(), life, checkpoints).unwrap()
    }

    /// What a processor wrote into its book.
    fn wrote(dir: &tempfile::TempDir, number: u32, run: u32, slots: Vec<Slot>) {
        let file = SlotFile::create(&book::path(dir.path(), number)).unwrap();
        for mut slot in slots {
            if let Slot::Handled { span, .. } = &mut slot {
                span.run = run;
            }
            file.add(&slot.encode()).unwrap();
        }
    }

    fn ranges(former: &Former) -> Vec<(i64, i64, String)> {
        let all = former.spans.iter().flatten();
        all.map(|span| (span.first, span.last, span.instance.to_string())).collect()
    }

    #[test]
    fn what_a_killed_run_wrote_down_is_counted_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, former) = open(&dir, LIFE, &[0, 5]);
        assert_eq!((former.runs, former.started, former.crashed_last), (0, 0, false));
        assert_eq!(former.since, [0, 5]);
        journal.started(2);
        let handled = Slot::Handled { partition: 1, span: span("home-2", 4, 5..=9) };
        wrote(&dir, 2, 1, vec![handled, Slot::Moved(moved(1, 4, MoveReason::TakenFromDead))]);
        drop(journal);

        let (journal, former) = open(&dir, LIFE, &[0, 9]);
        assert_eq!((former.runs, former.started, former.crashed_last), (1, 2, true));
        assert_eq!(ranges(&former), [(5, 9, "home-2".to_owned())]);
        assert_eq!(former.since, [0, 5], "it began there, wherever checkpoints are by now");
        assert!(former.crashed.contains(&InstanceId::new("home-2")));
        assert_eq!((former.moves[0].epoch, former.moves[0].reason), (Epoch(4), MoveReason::TakenFromDead));
        journal.started(3);
        wrote(&dir, 3, 2, vec![Slot::Handled { partition: 0, span: span("home-3", 1, 0..=7) }]);
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
            wrote(&dir, 1, 1, vec![Slot::Handled { partition: 0, span: span("home-1", 1, 0..=9) }]);
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
        let error = Journal::open(dir.path(), LIFE, &[0]).unwrap_err();
        assert!(error.contains("is damaged: remove it"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes");
    }
}
