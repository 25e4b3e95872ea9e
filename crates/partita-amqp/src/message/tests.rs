//! Messages as bytes.

use proptest::prelude::*;

use super::*;
use crate::types::{Checker, encode_list};

fn map() -> impl Strategy<Value = Option<Map>> {
    let pair = (any::<u64>().prop_map(Value::from), crate_value());
    prop::option::of(prop::collection::vec(pair, 0..4))
}

fn crate_value() -> impl Strategy<Value = Value> {
    prop_oneof![any::<i64>().prop_map(Value::from), "[a-z]{0,20}".prop_map(Value::from), Just(Value::Null)]
}

fn body() -> impl Strategy<Value = Body> {
    let data = || prop::collection::vec(any::<u8>(), 0..400).prop_map(Bytes::from);
    prop_oneof![
        data().prop_map(Body::Data),
        prop::collection::vec(data(), 2..4).prop_map(Body::DataSections),
        crate_value().prop_map(Body::Value),
        prop::collection::vec(prop::collection::vec(crate_value(), 0..4), 1..4).prop_map(Body::Sequence),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let header =
        prop::option::of((any::<Option<bool>>(), any::<Option<u8>>(), any::<Option<u32>>()).prop_map(
            |(durable, priority, delivery_count)| Header {
                durable,
                priority,
                delivery_count,
                ..Header::default()
            },
        ));
    let properties = prop::option::of(prop::collection::vec(crate_value(), 0..13));
    (header, map(), map(), properties, map(), body(), map()).prop_map(
        |(
            header,
            delivery_annotations,
            message_annotations,
            properties,
            application_properties,
            body,
            footer,
        )| {
            Message {
                header,
                delivery_annotations,
                message_annotations,
                properties,
                application_properties,
                body,
                footer,
            }
        },
    )
}

fn encoded(message: &Message) -> Bytes {
    let mut out = Vec::new();
    encode(message, &mut out).expect("encodes");
    out.into()
}

/// The sections one by one, and the whole decoded, of the same bytes.
fn agree(bytes: &Bytes) -> Result<(), TestCaseError> {
    let mut sections = Sections::new(Checker::new(bytes));
    let looked = loop {
        match sections.next() {
            Ok(None) if sections.has_body() => break Ok(()),
            Ok(None) => break Err(MessageError::NoBody),
            Ok(Some(_)) => {}
            Err(error) => break Err(error),
        }
    };
    prop_assert_eq!(looked, decode(bytes).map(|_| ()), "{:x?}", bytes);
    Ok(())
}

proptest! {
    #[test]
    fn sections_are_let_pass_if_the_message_decodes(
        message in message(), at in any::<usize>(), with in any::<u8>(), cut in 0..20_usize,
    ) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).expect("encodes");
        agree(&bytes.clone().into())?;
        let at = at % bytes.len();
        bytes[at] = with;
        agree(&bytes.clone().into())?;
        bytes.truncate(bytes.len().saturating_sub(cut));
        agree(&bytes.into())?;
    }

    #[test]
    fn messages_come_back(message in message()) {
        prop_assert_eq!(Message::decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn damaged_messages_end_in_a_message_or_an_error(
        message in message(), at in any::<prop::sample::Index>(), bit in 0..8, cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&message).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let _ = Message::decode(&bytes.clone().into());
        bytes.truncate(cut.index(bytes.len()));
        let _ = Message::decode(&bytes.into());
    }

    #[test]
    fn any_bytes_end_in_a_message_or_an_error(tail in prop::collection::vec(any::<u8>(), 0..200), section in 0x6f..0x7a_u8) {
        let mut bytes = vec![0, 0x53, section];
        bytes.extend(tail);
        let _ = Message::decode(&bytes.into());
    }
}

/// A durable message with a property and a text, worked out by hand from part 3 of the standard.
#[test]
fn golden_message() {
    let mut message = Message::new("hi");
    message.header = Some(Header { durable: Some(true), ..Header::default() });
    message.message_annotations = Some(vec![(Value::Symbol("x-opt-partition-key".into()), Value::from("k"))]);
    message.application_properties = Some(vec![(Value::from("n"), Value::from(1_i32))]);
    let bytes: &[u8] = b"\0\x53\x70\xc0\x02\x01\x41\
        \0\x53\x72\xc1\x19\x02\xa3\x13x-opt-partition-key\xa1\x01k\
        \0\x53\x74\xc1\x06\x02\xa1\x01n\x54\x01\
        \0\x53\x75\xa0\x02hi";
    assert_eq!(encoded(&message)[..], *bytes);
    assert_eq!(Message::decode(&Bytes::from_static(bytes)), Ok(message));
}

#[test]
fn descriptors_may_be_names() {
    let bytes = Bytes::from_static(b"\0\xa3\x10amqp:data:binary\xa0\x01x");
    assert_eq!(Message::decode(&bytes), Ok(Message::new("x")));
}

#[test]
fn sections_out_of_place_are_told() {
    let decode = |bytes: &'static [u8]| Message::decode(&Bytes::from_static(bytes));
    assert_eq!(decode(b""), Err(MessageError::NoBody));
    assert_eq!(decode(b"\0\x53\x70\x45"), Err(MessageError::NoBody));
    assert_eq!(decode(b"\0\x53\x70\x45\0\x53\x75\xa0\0\0\x53\x70\x45"), Err(MessageError::Order(0x70)));
    assert_eq!(decode(b"\0\x53\x75\xa0\0\0\x53\x77\x40"), Err(MessageError::Order(0x77)));
    assert_eq!(decode(b"\0\x53\x77\x40\0\x53\x77\x40"), Err(MessageError::Order(0x77)));
    assert_eq!(decode(b"\0\x53\x10\x45"), Err(MessageError::UnknownSection(0x10)));
    assert_eq!(decode(b"\x40"), Err(DecodeError::Expected("described value").into()));
    let mut long = vec![0, 0x53, 0x70];
    encode_list(&[const { Value::Null }; 5], &mut long).expect("encodes");
    assert_eq!(Message::decode(&long.into()), Err(MessageError::NoBody));
}

#[test]
fn sections_may_come_in_any_order_and_be_null() {
    let (header, hop) = (b"\0\x53\x70\x45".as_slice(), b"\0\x53\x71\xc1\x06\x02\xa3\x01h\x54\x01");
    let (data, footer) = (b"\0\x53\x75\xa0\x01x".as_slice(), b"\0\x53\x78\xc1\x06\x02\xa3\x01f\x54\x01");
    let expected = Message {
        header: Some(Header::default()),
        delivery_annotations: Some(vec![(Value::Symbol("h".into()), Value::Int(1))]),
        footer: Some(vec![(Value::Symbol("f".into()), Value::Int(1))]),
        ..Message::new("x")
    };
    for order in [[data, hop, header, footer], [footer, data, hop, header], [header, footer, hop, data]] {
        let bytes = Bytes::from(order.concat());
        assert_eq!(Message::decode(&bytes), Ok(expected.clone()));
        agree(&bytes).expect("the same by sections");
    }
    let twice = [data, hop, data].concat().into();
    let Body::DataSections(sections) = Message::decode(&twice).expect("decodes").body else { panic!("two") };
    assert_eq!(sections, ["x", "x"]);
    for (bytes, body) in [
        (&b"\0\x53\x75\x40"[..], Body::Data(Bytes::new())),
        (b"\0\x53\x70\x40\0\x53\x73\x40\0\x53\x75\x40", Body::Data(Bytes::new())),
    ] {
        let bytes = Bytes::from_static(bytes);
        assert_eq!(Message::decode(&bytes).expect("decodes").body, body);
        agree(&bytes).expect("the same by sections");
    }
}
