//! The `STORE` file: says what the directory is, in which format, and which life of it.

use super::{FORMAT_MAJOR, FORMAT_MINOR, MINOR_WITNESSED, StoreId, array, put, u16_at, u32_at};

const MAGIC: [u8; 8] = *b"PARTITA\n";

/// What `STORE` holds. Its layout is the same in every format, so that any program can tell a newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreRecord {
    pub(crate) store: StoreId,
    pub(crate) minor: u16,
}

/// Why a `STORE` file is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreRecordError {
    /// Not ours.
    Foreign,
    /// Ours, but its checksum does not match.
    Damaged,
    /// Written by a newer program.
    Newer { major: u16 },
}

impl StoreRecord {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn new(store: StoreId) -> Self {
        Self { store, minor: FORMAT_MINOR }
    }

    /// Whether every hub has a record of what it acknowledged. Programs that know of none write a lower minor number.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.minor >= MINOR_WITNESSED
    }

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &FORMAT_MAJOR.to_le_bytes());
        put(&mut out, 10, &self.minor.to_le_bytes());
        put(&mut out, 12, &self.store.0);
        let crc = crc32fast::hash(&out[..28]);
        put(&mut out, 28, &crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreRecordError> {
        if bytes.len() < Self::LEN {
            return Err(StoreRecordError::Foreign);
        }
        if u32_at(bytes, 28) != crc32fast::hash(&bytes[..28]) {
            // One damaged field is told from a file that never was ours by the rest of it.
            let ours = bytes[..8].iter().zip(&MAGIC).filter(|(a, b)| a == b).count() >= 6;
            return Err(if ours { StoreRecordError::Damaged } else { StoreRecordError::Foreign });
        }
        if bytes[..8] != MAGIC {
            return Err(StoreRecordError::Foreign);
        }
        let major = u16_at(bytes, 8);
        if major != FORMAT_MAJOR {
            return Err(StoreRecordError::Newer { major });
        }
        Ok(Self { store: StoreId(array(bytes, 12)), minor: u16_at(bytes, 10) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_refused() {
        let record = StoreRecord::new(StoreId([9; 16]));
        let bytes = record.encode();
        assert_eq!(StoreRecord::decode(&bytes), Ok(record));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(StoreRecord::decode(&flipped), Err(StoreRecordError::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn tells_newer_from_foreign() {
        let mut bytes = StoreRecord::new(StoreId([9; 16])).encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..28]);
        put(&mut bytes, 28, &crc.to_le_bytes());
        assert_eq!(StoreRecord::decode(&bytes), Err(StoreRecordError::Newer { major: 2 }));
        assert_eq!(StoreRecord::decode(&[7; 32]), Err(StoreRecordError::Foreign));
        assert_eq!(StoreRecord::decode(b"short"), Err(StoreRecordError::Foreign));
    }
}
