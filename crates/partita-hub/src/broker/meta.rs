//! What a hub is, in its `meta` file: replaced as a whole, so it is the old or the new one after a power cut.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::log::{Disk, Retention, read_whole, witness};

const MAGIC: [u8; 8] = *b"PARTHUB\n";
pub(crate) const FILE: &str = "meta";

/// Name, size and consumer groups of a hub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) partitions: u32,
    pub(crate) retention: Retention,
    /// The groups besides the default one, in the order in which they were made.
    pub(crate) groups: Vec<String>,
    /// When the hub was made, in milliseconds since 1970; 0 if it was made before this was kept.
    pub(crate) created_ms: i64,
    /// Whether it refuses to be sent to and read from; not, if it was made before this was kept.
    pub(crate) disabled: bool,
}

impl Meta {
    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([0; 4]);
        let age = u64::try_from(self.retention.age.as_millis()).unwrap_or(u64::MAX);
        out.extend(self.partitions.to_le_bytes());
        out.extend(age.to_le_bytes());
        out.extend(self.retention.bytes_max.unwrap_or(u64::MAX).to_le_bytes());
        out.extend((self.groups.len() as u32).to_le_bytes());
        for text in std::iter::once(&self.name).chain(&self.groups) {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        }
        out.extend(self.created_ms.to_le_bytes());
        out.push(self.disabled.into());
        let crc = crc32fast::hash(&out);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut copy = bytes.to_vec();
        let crc = u32::from_le_bytes(copy.get(8..12)?.try_into().ok()?);
        copy[8..12].fill(0);
        if copy[..8] != MAGIC || crc32fast::hash(&copy) != crc {
            return None;
        }
        let mut rest = &copy[12..];
        let mut take = |len: usize| {
            let (head, tail) = rest.split_at_checked(len)?;
            rest = tail;
            Some(head)
        };
        let partitions = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let age = u64::from_le_bytes(take(8)?.try_into().ok()?);
        let bytes_max = u64::from_le_bytes(take(8)?.try_into().ok()?);
        let groups = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let mut text = || {
            let len = u32::from_le_bytes(take(4)?.try_into().ok()?) as usize;
            String::from_utf8(take(len)?.to_vec()).ok()
        };
        let name = text()?;
        let groups = (0..groups).map(|_| text()).collect::<Option<Vec<_>>>()?;
        let created_ms = take(8).and_then(|bytes| bytes.try_into().ok()).map_or(0, i64::from_le_bytes);
        let disabled = take(1).is_some_and(|byte| byte != [0]);
        let bytes_max = (bytes_max != u64::MAX).then_some(bytes_max);
        Some(Self {
            name,
            partitions,
            retention: Retention { age: Duration::from_millis(age), bytes_max },
            groups,
            created_ms,
            disabled,
        })
    }

    /// Reads one; `None` if there is none, [`io::ErrorKind::InvalidData`] if it is damaged.
    pub(crate) fn load(disk: &dyn Disk, path: &Path) -> io::Result<Option<Self>> {
        match read_whole(disk, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => Self::decode(&bytes?).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }

    /// Puts it in place of the former one in a hub's directory, durably, and then a copy outside of it, from which it can
    /// be made again. A hub with a copy was finished; see [`Meta::load`].
    pub(crate) fn save(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let bytes = self.encode();
        witness::replace(disk, &dir.join(FILE), &bytes, 0)?;
        witness::replace(disk, &witness::meta_path(dir), &bytes, 0)
    }

    /// Makes the copy if it is not there, or not the same.
    pub(crate) fn save_copy(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let (path, bytes) = (witness::meta_path(dir), self.encode());
        match read_whole(disk, &path) {
            Ok(there) if there == bytes => Ok(()),
            _ => witness::replace(disk, &path, &bytes, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_as_written_and_refuses_any_flipped_bit() {
        let meta = Meta {
            name: "telemetry".into(),
            partitions: 16,
            retention: Retention { age: Duration::from_secs(60), bytes_max: Some(5) },
            groups: vec!["alerts".into(), "été".into()],
            created_ms: 1_700_000_000_000,
            disabled: true,
        };
        let bytes = meta.encode();
        assert_eq!(Meta::decode(&bytes), Some(meta));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::decode(&flipped), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Meta::decode(&bytes[..len]), None);
        }
    }
}
