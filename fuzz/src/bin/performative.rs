//! Performatives: whatever the bytes are, decoding ends; one that was decoded survives being encoded at full length.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_amqp::performative::Performative;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let Ok((performative, payload)) = Performative::decode(&bytes) else { return };
    let mut out = Vec::new();
    if performative.encode(&mut out).is_err() {
        return;
    }
    out.extend_from_slice(&payload);
    let (again, payload_again) =
        Performative::decode(&Bytes::from(out)).expect("what was encoded is decoded");
    assert_eq!(payload, payload_again);
    // Compared as text: a NaN is not equal to itself.
    assert_eq!(format!("{performative:?}"), format!("{again:?}"));
});
