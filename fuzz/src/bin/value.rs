//! Values: whatever the bytes are, decoding ends; and what was decoded is encoded to something that decodes to the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_amqp::types::{Decoder, encode};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let Ok(value) = Decoder::new(&bytes).value() else { return };
    let mut out = Vec::new();
    // Arrays of arrays may be of several widths, which is read and not written; everything else is.
    if encode(&value, &mut out).is_err() {
        return;
    }
    let again = Bytes::from(out);
    let mut decoder = Decoder::new(&again);
    let value_again = decoder.value().expect("what was encoded is decoded");
    assert!(decoder.is_empty(), "nothing is left over");
    // Compared as text: a NaN is not equal to itself.
    assert_eq!(format!("{value:?}"), format!("{value_again:?}"));
});
