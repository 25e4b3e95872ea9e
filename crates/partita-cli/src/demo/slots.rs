//! Files of 64-byte slots: what a demo knows of itself and must not forget when it is killed. A slot reaches the system in one
//! write, so it is there or it is not. Nothing is synced: after a power cut, which another boot tells, counting begins anew.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use partita::store::MoveReason;
use partita::{Epoch, InstanceId, Timestamp};
use partita_hub::log::{Access, Disk, DiskFile, OsDisk, WriteMode};

use super::ledger::Span;
use super::moves::Move;

/// The bytes of a slot.
pub(crate) const SLOT: usize = 64;

/// One thing that happened. Times count from the same moment in all processes of a boot; see [`clock`](super::clock).
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Slot {
    /// Consecutive events handled by one instance at one epoch.
    Handled { partition: usize, span: Span },
    /// One instance of a run, or the whole run, crashed or was frozen.
    Crashed { run: u32, instance: Option<u32> },
    /// A change of owner.
    Moved(Move),
    /// What lies before this event of a partition was handled by runs that are not in the file.
    Since { partition: usize, first: i64 },
    /// An owner began to read.
    Opened { partition: usize, epoch: Epoch, at: Timestamp },
}

/// The name of an instance by its number, and back; 0 is nobody.
pub(crate) fn instance(number: u32) -> InstanceId {
    InstanceId::new(format!("home-{number}"))
}

pub(crate) fn number(id: &InstanceId) -> u32 {
    id.as_str().strip_prefix("home-").and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn somebody(number: u32) -> Option<InstanceId> {
    (number > 0).then(|| instance(number))
}

/// Where a handled slot has its end: the last event, and when its call ended.
const END_AT: usize = 32;

/// The fields of every kind of slot.
#[derive(Default)]
struct Fields {
    kind: u8,
    a: u32,
    b: u32,
    c: u32,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    h: u64,
    i: u64,
}

impl Fields {
    fn encode(&self) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        out[0] = self.kind;
        for (at, number) in [(4, self.a), (8, self.b), (12, self.c)] {
            out[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        for (at, number) in
            [(16, self.d), (24, self.e), (32, self.f), (40, self.g), (48, self.h), (56, self.i)]
        {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            kind: bytes[0],
            a: u32_at(bytes, 4),
            b: u32_at(bytes, 8),
            c: u32_at(bytes, 12),
            d: u64_at(bytes, 16),
            e: u64_at(bytes, 24),
            f: u64_at(bytes, 32),
            g: u64_at(bytes, 40),
            h: u64_at(bytes, 48),
            i: u64_at(bytes, 56),
        }
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Slot {
    pub(crate) fn encode(&self) -> [u8; SLOT] {
        let fields = match self {
            Self::Handled { partition, span } => Fields {
                kind: 1,
                a: span.run,
                b: *partition as u32,
                c: number(&span.instance),
                d: span.epoch.0,
                e: span.first.cast_unsigned(),
                f: span.last.cast_unsigned(),
                g: nanos(span.ended),
                h: nanos(span.begun),
                i: span.enqueued.0.cast_unsigned(),
            },
            Self::Crashed { run, instance } => {
                Fields { kind: 2, a: *run, c: instance.unwrap_or(u32::MAX), ..Fields::default() }
            }
            Self::Moved(moved) => {
                let reason = MoveReason::ALL.iter().position(|known| *known == moved.reason);
                let id = |id: &Option<InstanceId>| u64::from(id.as_ref().map_or(0, number));
                Fields {
                    kind: 3,
                    b: moved.partition as u32,
                    c: reason.map_or(u32::MAX, |at| at as u32),
                    d: moved.epoch.0,
                    e: id(&moved.from),
                    f: id(&moved.to),
                    g: nanos(moved.at),
                    ..Fields::default()
                }
            }
            Self::Since { partition, first } => {
                Fields { kind: 4, b: *partition as u32, e: first.cast_unsigned(), ..Fields::default() }
            }
            Self::Opened { partition, epoch, at } => Fields {
                kind: 5,
                b: *partition as u32,
                d: epoch.0,
                i: at.0.cast_unsigned(),
                ..Fields::default()
            },
        };
        fields.encode()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let Fields { kind, a, b, c, d, e, f, g, h, i } = Fields::decode(bytes);
        let partition = b as usize;
        Some(match kind {
            1 => Self::Handled {
                partition,
                span: Span {
                    run: a,
                    instance: instance(c),
                    epoch: Epoch(d),
                    first: e.cast_signed(),
                    last: f.cast_signed(),
                    ended: Duration::from_nanos(g),
                    begun: Duration::from_nanos(h),
                    enqueued: Timestamp(i.cast_signed()),
                },
            },
            2 => Self::Crashed { run: a, instance: (c != u32::MAX).then_some(c) },
            3 => Self::Moved(Move {
                partition,
                from: somebody(e as u32),
                to: somebody(f as u32),
                epoch: Epoch(d),
                reason: *MoveReason::ALL.get(c as usize)?,
                at: Duration::from_nanos(g),
                opened: None,
            }),
            4 => Self::Since { partition, first: e.cast_signed() },
            5 => Self::Opened { partition, epoch: Epoch(d), at: Timestamp(i.cast_signed()) },
            _ => return None,
        })
    }
}

/// A file of slots, open for writing by one process.
#[derive(Debug)]
pub(crate) struct SlotFile {
    file: Arc<dyn DiskFile>,
    next: AtomicU64,
}

impl SlotFile {
    /// A new file, in place of what was there.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OsDisk.open(path, Access::Create)?, next: AtomicU64::new(0) })
    }

    /// An existing file, to go on after its first `slots`.
    pub(crate) fn resume(path: &Path, slots: u64) -> io::Result<Self> {
        let file = OsDisk.open(path, Access::Write(WriteMode::Buffered))?;
        Ok(Self { file, next: AtomicU64::new(slots) })
    }

    /// Adds a slot; its place.
    pub(crate) fn add(&self, bytes: &[u8; SLOT]) -> io::Result<u64> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.put(at, bytes)?;
        Ok(at)
    }

    /// Writes the slot at a place.
    pub(crate) fn put(&self, at: u64, bytes: &[u8; SLOT]) -> io::Result<()> {
        self.write(at * SLOT as u64, bytes)
    }

    /// Moves the end of a span.
    pub(crate) fn extend(&self, at: u64, last: i64, ended: Duration) -> io::Result<()> {
        let mut end = [0; 16];
        end[..8].copy_from_slice(&last.to_le_bytes());
        end[8..].copy_from_slice(&nanos(ended).to_le_bytes());
        self.write(at * SLOT as u64 + END_AT as u64, &end)
    }

    fn write(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_at(bytes, pos)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

/// The slots of a file. One of zeros was reserved by a process that was killed before it wrote it.
pub(crate) fn decode_all(content: &[u8]) -> Option<Vec<Slot>> {
    let written = content.chunks_exact(SLOT).filter(|slot| slot.iter().any(|byte| *byte != 0));
    written.map(Slot::decode).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{moved, span};
    use super::*;

    #[test]
    fn every_slot_reads_as_it_was_written() {
        let mut handled = span("home-7", 3, 5..=9);
        (handled.begun, handled.ended) = (Duration::from_nanos(11), Duration::from_nanos(12));
        handled.enqueued = Timestamp(-13);
        let mut change = moved(2, 4, MoveReason::TakenFromDead);
        (change.from, change.at) = (Some(instance(6)), Duration::from_millis(8));
        change.opened = None;
        for slot in [
            Slot::Handled { partition: 1_023, span: handled },
            Slot::Crashed { run: 2, instance: None },
            Slot::Crashed { run: 2, instance: Some(4) },
            Slot::Moved(change),
            Slot::Since { partition: 3, first: 17 },
            Slot::Opened { partition: 4, epoch: Epoch(5), at: Timestamp(6) },
        ] {
            assert_eq!(Slot::decode(&slot.encode()), Some(slot));
        }
        assert_eq!(Slot::decode(&[9; SLOT]), None);
    }

    #[test]
    fn a_span_grows_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slots");
        let file = SlotFile::create(&path).unwrap();
        let mut handled = span("home-1", 1, 0..=0);
        let at = file.add(&Slot::Handled { partition: 0, span: handled.clone() }.encode()).unwrap();
        file.add(&Slot::Since { partition: 0, first: 1 }.encode()).unwrap();
        file.extend(at, 41, Duration::from_nanos(7)).unwrap();
        (handled.last, handled.ended) = (41, Duration::from_nanos(7));
        let slots = decode_all(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(slots[0], Slot::Handled { partition: 0, span: handled });
        assert_eq!(slots.len(), 2);
    }
}
