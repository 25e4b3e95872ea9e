//! Frames: whatever the bytes are, they are taken apart into frames within the agreed size, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use partita_amqp::frame::{self, FRAME_BYTES_MIN};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((frame, used))) = frame::decode(rest, FRAME_BYTES_MIN) {
        assert!(used >= frame::FRAME_HEAD_BYTES && used <= FRAME_BYTES_MIN as usize);
        let mut out = Vec::new();
        let start = frame::begin(frame.kind, frame.channel, &mut out);
        out.extend_from_slice(frame.body);
        frame::finish(start, 0, &mut out);
        // Without its extended header, which nobody uses, it is the same frame.
        let (again, _) = frame::decode(&out, FRAME_BYTES_MIN).expect("decodes").expect("is whole");
        assert_eq!(frame, again);
        rest = &rest[used..];
    }
});
