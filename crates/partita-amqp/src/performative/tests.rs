//! Performatives as bytes.

use std::sync::Arc;

use partita_core::model::Value;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::message::Map;
use crate::types::Symbol;

// ---- any performative -----------------------------------------------------------------------------------------

fn text() -> impl Strategy<Value = Arc<str>> {
    "[a-zA-Z0-9/$é-]{0,12}|[a-z]{300}".prop_map(Arc::from)
}

fn symbol() -> impl Strategy<Value = Symbol> {
    "[a-z:.-]{1,12}".prop_map(Symbol::from)
}

fn symbols() -> impl Strategy<Value = Vec<Symbol>> {
    prop::collection::vec(symbol(), 0..3)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<u64>().prop_map(Value::Ulong),
        any::<i64>().prop_map(Value::Long),
        text().prop_map(Value::String),
        symbol().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..3).prop_map(Value::Map),
            inner.prop_map(|x| Value::Described(Box::new(Value::Ulong(0x468c_0000_0004)), Box::new(x))),
        ]
    })
}

fn map() -> impl Strategy<Value = Map> {
    prop::collection::vec((symbol().prop_map(Value::from), value()), 0..3)
}

fn error() -> impl Strategy<Value = Error> {
    (symbol(), of(text()), map()).prop_map(|(condition, description, info)| Error {
        condition,
        description,
        info,
    })
}

fn state() -> impl Strategy<Value = DeliveryState> {
    let other = Value::Described(Box::new(Value::Ulong(0x34)), Box::new(Value::List(vec![])));
    prop_oneof![
        (any::<u32>(), any::<u64>()).prop_map(|(section_number, section_offset)| DeliveryState::Received {
            section_number,
            section_offset
        }),
        Just(DeliveryState::Accepted),
        of(error()).prop_map(|error| DeliveryState::Rejected(error.map(Box::new))),
        Just(DeliveryState::Released),
        (any::<bool>(), any::<bool>(), map()).prop_map(
            |(delivery_failed, undeliverable_here, annotations)| {
                DeliveryState::Modified { delivery_failed, undeliverable_here, annotations }
            }
        ),
        Just(DeliveryState::Other(Box::new(other))),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    (
        of(text()),
        any::<u32>(),
        of(symbol()),
        any::<u32>(),
        any::<bool>(),
        map(),
        of(symbol()),
        value(),
        value(),
        symbols(),
        symbols(),
    )
        .prop_map(|x| Source {
            address: x.0,
            durable: x.1,
            expiry_policy: x.2,
            timeout_s: x.3,
            dynamic: x.4,
            dynamic_node_properties: x.5,
            distribution_mode: x.6,
            filter: x.7,
            default_outcome: x.8,
            outcomes: x.9,
            capabilities: x.10,
        })
}

fn target() -> impl Strategy<Value = Target> {
    let node = (of(text()), any::<u32>(), of(symbol()), any::<u32>(), any::<bool>(), map(), symbols())
        .prop_map(|x| Node {
            address: x.0,
            durable: x.1,
            expiry_policy: x.2,
            timeout_s: x.3,
            dynamic: x.4,
            dynamic_node_properties: x.5,
            capabilities: x.6,
        });
    let coordinator = Value::Described(Box::new(Value::Ulong(0x30)), Box::new(Value::List(vec![])));
    prop_oneof![
        3 => node.prop_map(|node| Target::Node(Box::new(node))),
        1 => Just(Target::Other(Box::new(coordinator))),
    ]
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)]
}

fn receiver_mode() -> impl Strategy<Value = ReceiverSettleMode> {
    prop_oneof![Just(ReceiverSettleMode::First), Just(ReceiverSettleMode::Second)]
}

fn sender_mode() -> impl Strategy<Value = SenderSettleMode> {
    use SenderSettleMode::{Mixed, Settled, Unsettled};
    prop_oneof![Just(Unsettled), Just(Settled), Just(Mixed)]
}

fn tag() -> impl Strategy<Value = DeliveryTag> {
    prop::collection::vec(any::<u8>(), 0..=TAG_BYTES_MAX).prop_map(|x| DeliveryTag::new(&x).unwrap())
}

fn open() -> impl Strategy<Value = Open> {
    let numbers = (any::<u32>(), any::<u16>(), any::<Option<u32>>());
    (text(), of(text()), numbers, symbols(), symbols(), symbols(), symbols(), map()).prop_map(|x| Open {
        container_id: x.0,
        hostname: x.1,
        max_frame_size: x.2.0,
        channel_max: x.2.1,
        idle_timeout_ms: x.2.2,
        outgoing_locales: x.3,
        incoming_locales: x.4,
        offered_capabilities: x.5,
        desired_capabilities: x.6,
        properties: x.7,
    })
}

fn begin() -> impl Strategy<Value = Begin> {
    (
        any::<Option<u16>>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        symbols(),
        symbols(),
        map(),
    )
        .prop_map(|x| Begin {
            remote_channel: x.0,
            next_outgoing_id: x.1,
            incoming_window: x.2,
            outgoing_window: x.3,
            handle_max: x.4,
            offered_capabilities: x.5,
            desired_capabilities: x.6,
            properties: x.7,
        })
}

fn attach() -> impl Strategy<Value = Attach> {
    let modes = (sender_mode(), receiver_mode());
    let rest = (any::<bool>(), any::<Option<u32>>(), any::<Option<u64>>(), symbols(), symbols(), map());
    (text(), any::<u32>(), role(), modes, of(source()), of(target()), value(), rest).prop_map(|x| Attach {
        name: x.0,
        handle: x.1,
        role: x.2,
        snd_settle_mode: x.3.0,
        rcv_settle_mode: x.3.1,
        source: x.4,
        target: x.5,
        unsettled: x.6,
        incomplete_unsettled: x.7.0,
        initial_delivery_count: x.7.1,
        max_message_size: x.7.2,
        offered_capabilities: x.7.3,
        desired_capabilities: x.7.4,
        properties: x.7.5,
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    (
        any::<Option<u32>>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<bool>(),
        any::<bool>(),
        map(),
    )
        .prop_map(|x| Flow {
            next_incoming_id: x.0,
            incoming_window: x.1,
            next_outgoing_id: x.2,
            outgoing_window: x.3,
            handle: x.4,
            delivery_count: x.5,
            link_credit: x.6,
            available: x.7,
            drain: x.8,
            echo: x.9,
            properties: x.10,
        })
}

fn transfer() -> impl Strategy<Value = Transfer> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        any::<u32>(),
        any::<Option<u32>>(),
        of(tag()),
        any::<Option<u32>>(),
        any::<Option<bool>>(),
        any::<bool>(),
        of(receiver_mode()),
        of(state()),
        flags,
    )
        .prop_map(|x| Transfer {
            handle: x.0,
            delivery_id: x.1,
            delivery_tag: x.2,
            message_format: x.3,
            settled: x.4,
            more: x.5,
            rcv_settle_mode: x.6,
            state: x.7,
            resume: x.8.0,
            aborted: x.8.1,
            batchable: x.8.2,
        })
}

fn disposition() -> impl Strategy<Value = Disposition> {
    (role(), any::<u32>(), any::<Option<u32>>(), any::<bool>(), of(state()), any::<bool>()).prop_map(|x| {
        Disposition { role: x.0, first: x.1, last: x.2, settled: x.3, state: x.4, batchable: x.5 }
    })
}

pub(crate) fn performative() -> impl Strategy<Value = Performative> {
    let detach = (any::<u32>(), any::<bool>(), of(error())).prop_map(|(handle, closed, error)| Detach {
        handle,
        closed,
        error,
    });
    prop_oneof![
        open().prop_map(Performative::from),
        begin().prop_map(Performative::from),
        attach().prop_map(Performative::from),
        flow().prop_map(Performative::from),
        transfer().prop_map(Performative::from),
        disposition().prop_map(Performative::from),
        detach.prop_map(Performative::from),
        of(error()).prop_map(|error| End { error }.into()),
        of(error()).prop_map(|error| Close { error }.into()),
    ]
}

// ---- properties -----------------------------------------------------------------------------------------------

pub(crate) fn encoded(performative: &Performative) -> Vec<u8> {
    let mut out = Vec::new();
    performative.encode(&mut out).unwrap();
    out
}

fn decoded(bytes: &[u8]) -> Result<(Performative, Bytes), DecodeError> {
    Performative::decode(&Bytes::copy_from_slice(bytes))
}

/// The number of fields that the bytes of a performative say they have.
fn field_count(bytes: &[u8]) -> u32 {
    match bytes[3] {
        0xc0 => bytes[5].into(),
        0xd0 => u32::from_be_bytes(bytes[8..12].try_into().unwrap()),
        other => panic!("a performative begins with 0x{other:02x}"),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_the_payload_is_what_follows(
        performative in performative(),
        payload in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = encoded(&performative);
        bytes.extend(&payload);
        let (read, rest) = decoded(&bytes).unwrap();
        prop_assert_eq!(read, performative);
        prop_assert_eq!(rest, payload);
    }

    #[test]
    fn every_performative_is_written_at_full_length(performative in performative()) {
        let fields = match performative {
            Performative::Open(_) => 10,
            Performative::Begin(_) => 8,
            Performative::Attach(_) => 14,
            Performative::Flow(_) => 11,
            Performative::Transfer(_) => 11,
            Performative::Disposition(_) => 6,
            Performative::Detach(_) => 3,
            Performative::End(_) | Performative::Close(_) => 1,
        };
        prop_assert_eq!(field_count(&encoded(&performative)), fields);
    }

    #[test]
    fn no_input_is_more_than_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decoded(&bytes);
    }

    #[test]
    fn a_performative_with_a_changed_or_missing_byte_is_no_more_than_an_error(
        performative in performative(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&performative);
        let cut = cut.index(bytes.len());
        prop_assert!(decoded(&bytes[..cut]).is_err());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decoded(&bytes);
    }
}

// ---- bytes worked out from the standard -----------------------------------------------------------------------

#[test]
fn a_transfer_is_these_bytes() {
    let transfer = Transfer {
        delivery_id: Some(300),
        delivery_tag: DeliveryTag::new(&[1, 2]),
        message_format: Some(0x8001_3700),
        settled: Some(false),
        ..Transfer::part(2)
    };
    let bytes = [
        &[0x00, 0x53, 0x14, 0xc0, 24, 11][..],
        &[0x52, 2],                      // handle
        &[0x70, 0, 0, 1, 44],            // delivery-id
        &[0xa0, 2, 1, 2],                // delivery-tag
        &[0x70, 0x80, 0x01, 0x37, 0x00], // message-format
        &[0x42, 0x42, 0x40, 0x40],       // settled, more, rcv-settle-mode, state
        &[0x42, 0x42, 0x42],             // resume, aborted, batchable
    ]
    .concat();
    assert_eq!(encoded(&transfer.into()), bytes);
}

#[test]
fn a_rejection_is_these_bytes() {
    let error = Error { condition: "a:b".into(), description: None, info: Map::new() };
    let disposition = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(7),
        settled: true,
        state: Some(DeliveryState::rejected(error)),
        batchable: false,
    };
    let bytes = [
        &[0x00, 0x53, 0x15, 0xc0, 26, 6][..],
        &[0x41, 0x43, 0x52, 7, 0x41],     // role, first, last, settled
        &[0x00, 0x53, 0x25, 0xc0, 14, 1], // rejected
        &[0x00, 0x53, 0x1d, 0xc0, 8, 3],  // error, with all three of its fields
        &[0xa3, 3, b'a', b':', b'b', 0x40, 0x40],
        &[0x42], // batchable
    ]
    .concat();
    assert_eq!(encoded(&disposition.into()), bytes);
}

#[test]
fn an_empty_close_has_its_field() {
    assert_eq!(encoded(&Close { error: None }.into()), [0x00, 0x53, 0x18, 0xc0, 2, 1, 0x40]);
}

#[test]
fn trailing_fields_may_be_missing() {
    let open = |bytes: &[u8]| match decoded(bytes).unwrap().0 {
        Performative::Open(open) => open,
        other => panic!("{other:?}"),
    };
    assert_eq!(*open(&[0x00, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'x']), Open::new("x"));
    // The same with a wide descriptor and a wide list, and by name.
    let wide = [&[0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x10][..], &[0xd0, 0, 0, 0, 7, 0, 0, 0, 1, 0xa1, 1, b'x']];
    assert_eq!(*open(&wide.concat()), Open::new("x"));
    let named = [&[0x00, 0xa3, 14][..], b"amqp:open:list", &[0xc0, 4, 1, 0xa1, 1, b'x']];
    assert_eq!(*open(&named.concat()), Open::new("x"));
    assert_eq!(decoded(&[0x00, 0x53, 0x10, 0x45]).unwrap_err(), DecodeError::Missing("container_id"));
}

#[test]
fn an_empty_terminus_is_one() {
    // As some clients attach to $cbs: source and target are lists of nothing.
    let bytes = [
        &[0x00, 0x53, 0x12, 0xc0, 18, 7][..],
        &[0xa1, 1, b'n', 0x43, 0x41, 0x50, 2, 0x50, 0],
        &[0x00, 0x53, 0x28, 0x45],
        &[0x00, 0x53, 0x29, 0x45],
    ]
    .concat();
    let Performative::Attach(attach) = decoded(&bytes).unwrap().0 else { panic!() };
    let expected = Attach {
        source: Some(Source::default()),
        target: Some(Target::Node(Box::default())),
        ..Attach::new("n", Role::Receiver)
    };
    assert_eq!(*attach, expected);
}

#[test]
fn one_capability_may_stand_without_an_array() {
    let bytes =
        [&[0x00, 0x53, 0x11, 0xc0, 12, 6][..], &[0x40, 0x43, 0x52, 5, 0x52, 5, 0x52, 255], &[0xa3, 1, b'x']];
    let bytes = bytes.concat();
    let Performative::Begin(begin) = decoded(&bytes).unwrap().0 else { panic!() };
    assert_eq!(begin.offered_capabilities, [Symbol::from("x")]);
}

#[test]
fn many_values_without_bytes_are_refused() {
    // An array of a million nulls as the properties of a close's error.
    let mut bytes = vec![0x00, 0x53, 0x18, 0xc0, 0, 1, 0x00, 0x53, 0x1d, 0xc0, 0, 3, 0xa3, 1, b'x', 0x40];
    bytes.extend([0xf0, 0, 0, 0, 5, 0, 0x0f, 0xff, 0xff, 0x40]);
    let len = bytes.len() as u8;
    (bytes[4], bytes[10]) = (len - 5, len - 11);
    assert_eq!(decoded(&bytes).unwrap_err(), DecodeError::TooMany);
}

#[test]
fn a_tag_is_taken_up_to_the_length_that_the_service_takes() {
    for len in [0, 32, 33, 34, 255] {
        let bytes = vec![7; len];
        assert_eq!(DeliveryTag::new(&bytes).as_ref().map(DeliveryTag::as_bytes), Some(&bytes[..]));
    }
    assert!(DeliveryTag::new(&[0; 256]).is_none());
    assert_eq!(DeliveryTag::from(258).as_bytes(), [0, 0, 0, 0, 0, 0, 1, 2]);
}

#[test]
fn an_answer_repeats_termini_and_modes_and_swaps_the_role() {
    let mut asked = Attach::receiver("r", "hub/ConsumerGroups/cg/Partitions/0");
    asked.snd_settle_mode = SenderSettleMode::Unsettled;
    asked.rcv_settle_mode = ReceiverSettleMode::Second;
    asked.source.as_mut().unwrap().filter =
        Value::Map(vec![(Value::from(Symbol::from("f")), Value::from("x"))]);
    let answer = asked.answer();
    assert_eq!(answer.role, Role::Sender);
    assert_eq!((answer.source, answer.target), (asked.source.clone(), asked.target.clone()));
    assert_eq!(answer.snd_settle_mode, asked.snd_settle_mode);
    assert_eq!(answer.rcv_settle_mode, asked.rcv_settle_mode);
    assert_eq!(asked.address(), Some("hub/ConsumerGroups/cg/Partitions/0"));
    assert_eq!(asked.source.unwrap().filter("f"), Some(&Value::from("x")));
    assert_eq!(Attach::sender("s", "hub").address(), Some("hub"));
}

#[test]
fn a_refused_attach_is_name_handle_role_and_nulls() {
    let refused = Refused { name: "r".into(), handle: 3, role: Role::Sender };
    let mut out = Vec::new();
    refused.encode(&mut out).expect("encodes");
    let expected = b"\0\x53\x12\xc0\x12\x0e\xa1\x01r\x52\x03\x42\x40\x40\x40\x40\x40\x40\x40\x40\x40\x40\x40";
    assert_eq!(out, expected);
}
