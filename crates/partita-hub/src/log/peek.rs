//! What a hub's directory holds, without opening it.

use std::io;
use std::path::Path;

use super::core::read_range;
use super::disk::{Access, Disk, read_full};
use super::format::{BLOCK, Seed, SegmentHeader, StoreId};
use super::scan::{ScanInput, scan};
use super::segment::{segment_id, segment_path};

/// What the segments in a directory tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Peek {
    /// Whether there ever were events.
    pub(crate) events: bool,
    /// How many partitions the segments know of.
    pub(crate) partitions: u32,
}

/// Looks at the segments of a hub. A hub whose making was not finished has the first one, without events, or none.
pub(crate) fn peek(disk: &dyn Disk, dir: &Path, store: StoreId) -> io::Result<Peek> {
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Peek::default()),
        names => names?,
    };
    let ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    let mut found = Peek { events: ids.iter().any(|id| *id != 1), partitions: 0 };
    for id in ids {
        let file = disk.open(&segment_path(dir, id), Access::Read)?;
        let mut head = vec![0; BLOCK];
        let read = read_full(&*file, &mut head, 0)?;
        let Some(header) = SegmentHeader::decode(&head[..read]) else {
            // A segment has its name only once its header is durable: this one was damaged later.
            found.events = true;
            continue;
        };
        found.partitions = found.partitions.max(header.partitions);
        if !found.events {
            let bytes = read_range(&*file, header.capacity.min(file.len()?))?;
            let table = header.decode_table(bytes.get(BLOCK..).unwrap_or_default());
            let scanned = scan(ScanInput {
                bytes: &bytes,
                reach: bytes.len() as u64,
                start: header.data_start() as u64,
                segment: id,
                seed: Seed::new(store, id),
                first_commit: Some(header.first_commit),
                boot: header.boot,
                table: table.unwrap_or_default().0,
                guessed: false,
                producers: None,
                sealed: false,
            });
            found.events = scanned.table.iter().any(|entry| entry.next_seq > 0);
            found.partitions = found.partitions.max(scanned.table.len() as u32);
        }
    }
    Ok(found)
}
