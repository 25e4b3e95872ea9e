//! The bytes of a real client: azure-eventhub 5.15 for Python, as it was seen to send them on several connections. Only
//! handles were changed, to make one connection of them.

use super::raw::Raw;
use super::*;
use crate::performative::{DeliveryState, Role};

fn hex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

const SASL_INIT: &str = "0000002602010000005341c01903a309414e4f4e594d4f5553a000a1096c6f63616c686f7374";

/// Header, open, begin, and both links to `$cbs`, which it writes at once.
const START: &str = "414d515000010000
    0000004d02000000005310c0400aa12439646533373366332d353335652d346566352d393761642d6665396166313739643134
    62a1096c6f63616c686f7374700010000060ffff404040404040
    0000002202000001005311c0150840437000010000700001000070ffffffff404040
    0000006b02000001005312c05e0ea12463646463333662622d363665312d343732342d396131312d3939663037356236313066
    375202560150005000005328c0110ba1042463627340404040404040404040005329c00d07a104246362734040404040404040
    4040404040
    0000006b02000001005312c05e0ea12464363366663239352d656536332d346361642d626363642d3365393637663362356338
    645201560050005000005328c0110ba1042463627340404040404040404040005329c00d07a104246362734040404040404040
    4340404040";

/// Credit on both links, also on the one on which it sends.
const FLOWS: &str = "0000002602000001005313c0190b437000010000437000010000520243700000271040404040
    0000002602000001005313c0190b437000010000437000010000520143700000271040404040";

/// A receiver from the start of a partition.
const RECEIVER: &str = "0000018f02000001005312d00000017f0000000ea12438336239373238372d646261612d346338632d
    396330372d6139646134306362386138345203560150005000005328c0bb0ba140616d7170733a2f2f6c6f63616c686f73743a
    31353637322f6568312f436f6e73756d657247726f7570732f2444656661756c742f506172746974696f6e732f304040404040
    40c16d02a3216170616368652e6f72673a73656c6563746f722d66696c7465723a737472696e6700a3216170616368652e6f72
    673a73656c6563746f722d66696c7465723a737472696e67a123616d71702e616e6e6f746174696f6e2e782d6f70742d6f6666
    736574203e20272d3127404040005329c03b07a13272656365697665722d6c696e6b2d38336239373238372d646261612d3463
    38632d396330372d61396461343063623861383440404040404040404080000000000010000040e02201b30000001c636f6d2e
    6d6963726f736f66743a67656f7265706c69636174696f6ec11a02a315636f6d2e6d6963726f736f66743a74696d656f757455
    00";

/// A batch of one event.
const BATCH: &str = "0000003502000001005314c0190b52015201a004000000017080013700560056004040404040
    005375a00a005375a00568656c6c6f";

/// It detaches two links, ends the session, detaches the session's other link, and closes.
const END: &str = "0000001302000001005316c0060352025601400000001302000001005316c00603520156014000
    00000f02000001005317c00201400000001302000001005316c0060352035600400000000f02000000005318c0020140";

#[test]
fn its_whole_life_is_understood() {
    let mut raw = Raw::new(Options::new("hub"));
    raw.bytes(&crate::frame::Protocol::Sasl.header());
    raw.bytes(&hex(SASL_INIT));
    raw.bytes(&hex(START));
    let events = raw.events();
    let [
        Event::Opened(open),
        Event::Begun(_),
        Event::Attaching { link: from_us, attach: receiver },
        Event::Attaching { link: to_us, attach: sender },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((open.max_frame_size, open.channel_max, open.idle_timeout_ms), (1 << 20, u16::MAX, None));
    assert_eq!((receiver.role, receiver.address()), (Role::Receiver, Some("$cbs")));
    assert_eq!((sender.role, sender.address()), (Role::Sender, Some("$cbs")));
    raw.server.answer_attach(*from_us, receiver.answer());
    raw.server.answer_attach(*to_us, sender.answer());
    raw.server.set_credit(*to_us, 300, false);

    raw.bytes(&hex(FLOWS));
    assert_eq!(raw.events(), [Event::Credit { link: *from_us, credit: 10_000, drain: false }]);
    assert_eq!((raw.server.sendable(*from_us), raw.server.credit(*to_us)), (10_000, 300));

    raw.bytes(&hex(BATCH));
    let [Event::Delivery(delivery)] = &raw.events()[..] else { panic!() };
    assert_eq!(
        (delivery.format, delivery.settled, delivery.tag.as_bytes()),
        (0x8001_3700, false, &[0, 0, 0, 1][..])
    );
    raw.server.settle(delivery.link, delivery.id, DeliveryState::Accepted);

    raw.bytes(&hex(RECEIVER));
    let [Event::Attaching { link, attach }] = &raw.events()[..] else { panic!() };
    let address = "amqps://localhost:15672/eh1/ConsumerGroups/$Default/Partitions/0";
    assert_eq!(attach.address(), Some(address));
    assert!(attach.source.as_ref().unwrap().filter("apache.org:selector-filter:string").is_some());
    assert_eq!(attach.property("com.microsoft:timeout").and_then(|value| value.as_i64()), Some(0));
    assert_eq!(attach.desired_capabilities[0], "com.microsoft:georeplication");
    raw.server.answer_attach(*link, attach.answer());

    raw.bytes(&hex(END));
    let events = raw.events();
    let [
        Event::Detached { error: None, .. },
        Event::Detached { error: None, .. },
        Event::Ended { error: None, .. },
        Event::Closed { error: None, by_peer: true },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
}
