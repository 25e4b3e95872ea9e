//! Messages: whatever the bytes are, decoding ends; a message that was decoded survives being encoded.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_dialect::event;
use partita_amqp::message::{decode, encode};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let _ = event::decode(&bytes);
    let Ok(message) = decode(&bytes) else { return };
    let mut out = Vec::new();
    if encode(&message, &mut out).is_err() {
        return;
    }
    let again = decode(&Bytes::from(out)).expect("what was encoded is decoded");
    assert_eq!(format!("{message:?}"), format!("{again:?}"));
});
