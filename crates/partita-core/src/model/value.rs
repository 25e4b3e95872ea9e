//! The values that properties, annotations and value bodies hold: AMQP's types.

use std::sync::Arc;

use bytes::Bytes;

use super::Timestamp;

/// An AMQP value.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // The variants are AMQP's type names.
pub enum Value {
    Null,
    Boolean(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    /// An IEEE 754-2008 decimal, as its bytes: nothing here calculates with it.
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    Timestamp(Timestamp),
    Uuid(u128),
    Binary(Bytes),
    String(Arc<str>),
    Symbol(Arc<str>),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Array(Vec<Value>),
    Described(Box<Value>, Box<Value>),
}

impl Value {
    /// The text of a string or symbol.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if the value is of an integer type and fits.
    pub fn as_i64(&self) -> Option<i64> {
        Some(match *self {
            Self::Ubyte(n) => n.into(),
            Self::Ushort(n) => n.into(),
            Self::Uint(n) => n.into(),
            Self::Ulong(n) => i64::try_from(n).ok()?,
            Self::Byte(n) => n.into(),
            Self::Short(n) => n.into(),
            Self::Int(n) => n.into(),
            Self::Long(n) => n,
            _ => return None,
        })
    }
}

macro_rules! from {
    ($($from:ty => |$x:ident| $value:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($x: $from) -> Self {
                $value
            }
        })*
    };
}

from! {
    bool => |x| Self::Boolean(x);
    i32 => |x| Self::Int(x);
    i64 => |x| Self::Long(x);
    u32 => |x| Self::Uint(x);
    u64 => |x| Self::Ulong(x);
    f64 => |x| Self::Double(x);
    &str => |x| Self::String(Arc::from(x));
    String => |x| Self::String(Arc::from(x));
    Bytes => |x| Self::Binary(x);
    Timestamp => |x| Self::Timestamp(x);
}
