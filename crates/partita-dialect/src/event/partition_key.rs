//! Which partition a key belongs to: the service's hash, so that a key is in the same partition there and here.

/// The longest partition key that a hub takes.
pub const KEY_CHARS_MAX: usize = 128;

/// The partition of a key.
pub fn partition_of(key: &str, partitions: u32) -> u32 {
    (i64::from(hash(key)) % i64::from(partitions)).unsigned_abs() as u32
}

/// Jenkins' lookup3 (hashlittle2 with seeds 0) of the key's UTF-8, folded to 16 bits.
fn hash(key: &str) -> i16 {
    let bytes = key.as_bytes();
    let (mut a, mut b, mut c) = {
        let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
        (start, start, start)
    };
    if bytes.is_empty() {
        return 0;
    }
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        a = a.wrapping_add(word(block, 0));
        b = b.wrapping_add(word(block, 4));
        c = c.wrapping_add(word(block, 8));
        (a, b, c) = mix(a, b, c);
        rest = after;
    }
    a = a.wrapping_add(word(rest, 0));
    b = b.wrapping_add(word(rest, 4));
    c = c.wrapping_add(word(rest, 8));
    let (b, c) = last_mix(a, b, c);
    (b ^ c) as i16
}

/// Four bytes at a place, little endian; those beyond the end are zero.
fn word(bytes: &[u8], at: usize) -> u32 {
    (0..4).map(|i| u32::from(bytes.get(at + i).copied().unwrap_or(0)) << (8 * i)).sum()
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}

fn last_mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32) {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (b, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_the_service_hashes_them() {
        let vectors = [
            ("", 0),
            ("7", -15_263),
            ("7149583486996073602", 12_977),
            ("FWfAT", -22_341),
            ("sOdeEAsyQoEuEFPGerWO", -6_503),
            ("twelve-chars", -5_054),
            ("é", -24_812),
        ];
        for (key, expected) in vectors {
            assert_eq!(hash(key), expected, "{key}");
        }
        assert_eq!(partition_of("7", 16), 15_263 % 16);
    }
}
