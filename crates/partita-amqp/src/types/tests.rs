//! Golden bytes, round trips, limits, and input that is no AMQP.

use bytes::Bytes;
use partita_core::model::{Timestamp, Value};
use proptest::prelude::*;

use super::*;

pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        prop_oneof![any::<u32>(), 0..300_u32].prop_map(Value::Uint),
        prop_oneof![any::<u64>(), 0..300_u64].prop_map(Value::Ulong),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        prop_oneof![any::<i32>(), -200..200_i32].prop_map(Value::Int),
        prop_oneof![any::<i64>(), -200..200_i64].prop_map(Value::Long),
        any::<i32>().prop_map(|n| Value::Float(n as f32)),
        any::<i64>().prop_map(|n| Value::Double(n as f64 / 3.0)),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(Value::Char),
        any::<i64>().prop_map(|ms| Value::Timestamp(Timestamp(ms))),
        any::<u128>().prop_map(Value::Uuid),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Binary(bytes.into())),
        prop::collection::vec(any::<char>(), 0..120)
            .prop_map(|c| Value::from(c.into_iter().collect::<String>())),
        prop::collection::vec(0x20..0x7f_u8, 0..300)
            .prop_map(|ascii| Value::Symbol(String::from_utf8(ascii).expect("ASCII").into())),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..5).prop_map(Value::Map),
            (inner.clone(), 0..4_usize).prop_map(|(value, n)| Value::Array(vec![value; n])),
            prop::collection::vec(any::<i64>().prop_map(Value::Long), 0..5).prop_map(Value::Array),
            (any::<u64>(), inner).prop_map(|(d, v)| Value::Described(Value::Ulong(d).into(), v.into())),
        ]
    })
}

fn encoded(value: &Value) -> Bytes {
    let mut out = Vec::new();
    encode(value, &mut out).expect("encodes");
    out.into()
}

fn decoded(bytes: &'static [u8]) -> Result<Value, DecodeError> {
    let bytes = Bytes::from_static(bytes);
    let mut decoder = Decoder::new(&bytes);
    let value = decoder.value()?;
    assert!(decoder.is_empty());
    Ok(value)
}

/// The checker and the decoder, on the same bytes.
fn agree(bytes: &Bytes) -> Result<(), TestCaseError> {
    let (mut decoder, mut checker) = (Decoder::new(bytes), Checker::new(bytes));
    let decoded = decoder.value().map(|_| ());
    prop_assert_eq!(checker.value().map(|_| ()), decoded, "{:x?}", bytes);
    if decoded.is_ok() {
        prop_assert_eq!(checker.is_empty(), decoder.is_empty());
    }
    Ok(())
}

proptest! {
    #[test]
    fn checking_and_decoding_agree(value in any_value(), at in any::<usize>(), with in any::<u8>(), cut in 0..40_usize) {
        let mut bytes = encoded(&value).to_vec();
        agree(&bytes.clone().into())?;
        let at = at % bytes.len();
        bytes[at] = with;
        agree(&bytes.clone().into())?;
        bytes.truncate(bytes.len().saturating_sub(cut));
        agree(&bytes.into())?;
    }

    #[test]
    fn checking_and_decoding_agree_on_noise(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        agree(&bytes.into())?;
    }

    #[test]
    fn values_come_back(value in any_value()) {
        let bytes = encoded(&value);
        let mut decoder = Decoder::new(&bytes);
        prop_assert_eq!(decoder.value(), Ok(value));
        prop_assert!(decoder.is_empty());
    }

    #[test]
    fn truncated_values_are_told(value in any_value(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&value);
        let cut = bytes.slice(..cut.index(bytes.len()));
        prop_assert!(Decoder::new(&cut).value().is_err());
    }

    #[test]
    fn flipped_bits_end_in_a_value_or_an_error(value in any_value(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = encoded(&value).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let _ = Decoder::new(&bytes.into()).value();
    }

    #[test]
    fn any_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Decoder::new(&bytes.into()).value();
    }
}

/// Worked out by hand from the encodings of part 1 of the standard.
#[test]
fn golden_bytes() {
    let list = Value::List(vec![Value::from(1_u32), Value::Null, Value::from("ab")]);
    let described = Value::Described(Value::Symbol("example:book:list".into()).into(), list.clone().into());
    let symbols = Value::Array(vec![Value::Symbol("a".into()), Value::Symbol("bc".into())]);
    let url = Value::from("http://example.org/hello-world");
    let golden: &[(Value, &[u8])] = &[
        (
            Value::Described(Value::from("URL").into(), url.into()),
            b"\0\xa1\x03URL\xa1\x1ehttp://example.org/hello-world",
        ),
        (Value::Null, b"\x40"),
        (Value::Boolean(true), b"\x41"),
        (Value::Uint(0), b"\x43"),
        (Value::Uint(255), b"\x52\xff"),
        (Value::Uint(256), b"\x70\0\0\x01\0"),
        (Value::Ulong(0x75), b"\x53\x75"),
        (Value::Int(-1), b"\x54\xff"),
        (Value::Long(-129), b"\x81\xff\xff\xff\xff\xff\xff\xff\x7f"),
        (Value::Double(1.0), b"\x82\x3f\xf0\0\0\0\0\0\0"),
        (Value::Char('\u{1f600}'), b"\x73\0\x01\xf6\0"),
        (Value::Timestamp(Timestamp(1_311_704_463_521)), b"\x83\0\0\x01\x31\x67\xad\xb8\xa1"),
        (Value::Uuid(1), b"\x98\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"),
        (Value::from("Glorp"), b"\xa1\x05Glorp"),
        (Value::List(vec![]), b"\x45"),
        (list, b"\xc0\x08\x03\x52\x01\x40\xa1\x02ab"),
        (described, b"\0\xa3\x11example:book:list\xc0\x08\x03\x52\x01\x40\xa1\x02ab"),
        (Value::Map(vec![(Value::from("k"), Value::Boolean(false))]), b"\xc1\x05\x02\xa1\x01k\x42"),
        (symbols, b"\xe0\x07\x02\xa3\x01a\x02bc"),
        (Value::Array(vec![]), b"\xe0\x02\0\x40"),
    ];
    for (value, bytes) in golden {
        assert_eq!(encoded(value)[..], **bytes, "{value:?}");
        assert_eq!(decoded(bytes).as_ref(), Ok(value), "{bytes:02x?}");
    }
}

#[test]
fn every_width_is_read() {
    for (bytes, value) in [
        (&b"\x56\x01"[..], Value::Boolean(true)),
        (b"\x56\0", Value::Boolean(false)),
        (b"\x70\0\0\0\x01", Value::Uint(1)),
        (b"\x80\0\0\0\0\0\0\0\x01", Value::Ulong(1)),
        (b"\x71\0\0\0\x01", Value::Int(1)),
        (b"\x81\0\0\0\0\0\0\0\x01", Value::Long(1)),
        (b"\xb0\0\0\0\x01x", Value::Binary(Bytes::from_static(b"x"))),
        (b"\xb1\0\0\0\x01x", Value::from("x")),
        (b"\xb3\0\0\0\x01x", Value::Symbol("x".into())),
        (b"\xc0\x01\0", Value::List(vec![])),
        (b"\xd0\0\0\0\x05\0\0\0\x01\x40", Value::List(vec![Value::Null])),
        (b"\xd1\0\0\0\x06\0\0\0\x02\x40\x41", Value::Map(vec![(Value::Null, Value::Boolean(true))])),
        (b"\xf0\0\0\0\x07\0\0\0\x02\x50\x01\x02", Value::Array(vec![Value::Ubyte(1), Value::Ubyte(2)])),
    ] {
        assert_eq!(decoded(bytes), Ok(value), "{bytes:02x?}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (bytes, error) in [
        (&b""[..], DecodeError::Truncated),
        (b"\x01", DecodeError::UnknownCode(1)),
        (b"\x56\x02", DecodeError::BadValue("boolean")),
        (b"\x73\0\0\xd8\0", DecodeError::BadValue("char")),
        (b"\xa1\x01\xff", DecodeError::BadValue("string")),
        (b"\xa3\x02\xc3\xa9", DecodeError::BadValue("symbol")),
        (b"\xc0\x03\x01\x40\x40", DecodeError::BadSize("list")),
        (b"\xc0\x02\x02\x40", DecodeError::Truncated),
        (b"\xc1\x02\x01\x40", DecodeError::BadSize("map")),
        (b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff", DecodeError::Truncated),
        // Four thousand million nulls in ten bytes.
        (b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40", DecodeError::TooMany),
    ] {
        assert_eq!(decoded(bytes), Err(error), "{bytes:02x?}");
    }
}

#[test]
fn depth_is_bounded_both_ways() {
    let nested = |depth| (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]));
    let bytes = encoded(&nested(DEPTH_MAX));
    assert_eq!(Decoder::new(&bytes).value(), Ok(nested(DEPTH_MAX)));
    assert_eq!(encode(&nested(DEPTH_MAX + 1), &mut Vec::new()), Err(EncodeError::TooDeep));
    let mut deeper = vec![0xc0, bytes.len() as u8 + 1, 1];
    deeper.extend_from_slice(&bytes);
    assert_eq!(Decoder::new(&deeper.into()).value(), Err(DecodeError::TooDeep));
    // Descriptors of descriptors.
    assert_eq!(Decoder::new(&vec![0; 100_000].into()).value(), Err(DecodeError::TooDeep));
}

#[test]
fn arrays_are_of_one_type() {
    let mixed = Value::Array(vec![Value::from(1_i32), Value::from("x")]);
    assert_eq!(encode(&mixed, &mut Vec::new()), Err(EncodeError::MixedArray));
}

/// Found by the fuzzer: a descriptor stands once before an array and is in every element of it.
#[test]
fn a_descriptor_counts_for_every_element_that_has_it() {
    // An array of 600,000 described nulls, whose descriptor is a list of 100 nulls.
    let mut bytes =
        vec![code::ARRAY_32, 0, 0, 0, 0, 0, 9, 0x27, 0xc0, code::DESCRIBED, code::LIST_8, 101, 100];
    bytes.extend([code::NULL; 101]);
    let size = u32::try_from(bytes.len() - 5).unwrap();
    bytes[1..5].copy_from_slice(&size.to_be_bytes());
    let bytes = Bytes::from(bytes);
    assert_eq!(Decoder::new(&bytes).value().unwrap_err(), DecodeError::TooMany);
    assert_eq!(Checker::new(&bytes).value().unwrap_err(), DecodeError::TooMany);
}
