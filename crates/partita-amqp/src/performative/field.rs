//! How each type of field is read and written, and the form in which the files beside this one state the standard's tables.

use std::sync::Arc;

use bytes::Bytes;
use partita_core::model::Value;

use crate::message::Map;
use crate::types::{self, DecodeError, EncodeError, Fields, Symbol, code};

/// A type that fields have.
pub(crate) trait Field: Sized {
    /// Reads the next field; `None` if it is absent and the type has no word for that.
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError>;

    /// Appends it.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// A composite type.
pub(crate) trait Composite: Sized {
    /// The number of its descriptor.
    const DESCRIPTOR: u8;

    /// How many fields it has.
    const FIELDS: u8;

    /// Reads its fields.
    fn read_fields(fields: &mut Fields<'_>) -> Result<Self, DecodeError>;

    /// Appends its fields, every one: some clients index them by position and never pad.
    fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Appends descriptor and list.
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        types::smallulong_descriptor(Self::DESCRIPTOR, out);
        list(Self::FIELDS, out, |out| self.write_fields(out))
    }
}

/// Appends a list behind a short head, which is made longer if it must be: most fit it.
#[inline]
pub(super) fn list(
    count: u8,
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let head = out.len();
    out.extend_from_slice(&[code::LIST_8, 0, count]);
    content(out)?;
    let len = out.len() - head - 3;
    match u8::try_from(len + 1) {
        Ok(size) => out[head + 1] = size,
        Err(_) => {
            let size = u32::try_from(len + 4).map_err(|_| EncodeError::TooLarge)?;
            let mut wide = [code::LIST_32, 0, 0, 0, 0, 0, 0, 0, count];
            wide[1..5].copy_from_slice(&size.to_be_bytes());
            out.splice(head..head + 3, wide);
        }
    }
    Ok(())
}

impl<T: Composite> Field for T {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        let Some(mut composite) = fields.composite()? else { return Ok(None) };
        if composite.descriptor != u64::from(Self::DESCRIPTOR) {
            return Err(DecodeError::Expected("composite value of another type"));
        }
        Self::read_fields(&mut composite.fields).map(Some)
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode(out)
    }
}

impl<T: Field> Field for Option<T> {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        T::read(fields).map(Some)
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Some(field) => field.write(out),
            None => {
                out.push(code::NULL);
                Ok(())
            }
        }
    }
}

impl Field for bool {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        fields.boolean()
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(if *self { code::TRUE } else { code::FALSE });
        Ok(())
    }
}

/// A number that must fit a narrower type than it is read as.
macro_rules! narrow {
    ($type:ty) => {
        #[inline]
        fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
            let Some(number) = fields.unsigned()? else { return Ok(None) };
            number.try_into().map(Some).map_err(|_| DecodeError::BadValue(stringify!($type)))
        }
    };
}

impl Field for u8 {
    narrow!(ubyte);

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&[code::UBYTE, *self]);
        Ok(())
    }
}

impl Field for u16 {
    narrow!(ushort);

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let [high, low] = self.to_be_bytes();
        out.extend_from_slice(&[code::USHORT, high, low]);
        Ok(())
    }
}

impl Field for u32 {
    narrow!(uint);

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match *self {
            0 => out.push(code::UINT_0),
            1..=255 => out.extend_from_slice(&[code::UINT_8, *self as u8]),
            _ => {
                let [a, b, c, d] = self.to_be_bytes();
                out.extend_from_slice(&[code::UINT, a, b, c, d]);
            }
        }
        Ok(())
    }
}

impl Field for u64 {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        fields.unsigned()
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        types::encode(&Value::Ulong(*self), out)
    }
}

impl Field for Arc<str> {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(fields.text()?.map(Self::from))
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        types::text(self, out)
    }
}

impl Field for Symbol {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        match fields.text()? {
            Some(text) if !text.is_ascii() => Err(DecodeError::BadValue("symbol")),
            text => Ok(text.map(Self::from)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        types::symbol(self, out)
    }
}

impl Field for Bytes {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        fields.binary()
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        types::binary(self, out)
    }
}

impl Field for Value {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        fields.value().map(Some)
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        types::encode(self, out)
    }
}

/// Properties and the like; no pairs are written as null.
impl Field for Map {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        match fields.value()? {
            Value::Null => Ok(Some(Self::new())),
            Value::Map(pairs) => Ok(Some(pairs)),
            _ => Err(DecodeError::Expected("map")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.is_empty() {
            out.push(code::NULL);
            return Ok(());
        }
        types::compound((code::MAP_8, code::MAP_32), self.len() * 2, out, |out| {
            for (key, value) in self {
                types::encode(key, out)?;
                types::encode(value, out)?;
            }
            Ok(())
        })
    }
}

/// Where the standard says "multiple": none, one or an array. None is written as null, one or more as an array.
impl Field for Vec<Symbol> {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        let symbol = |value| match value {
            Value::Symbol(text) | Value::String(text) => Ok(Symbol(text)),
            _ => Err(DecodeError::Expected("symbol")),
        };
        match fields.value()? {
            Value::Null => Ok(Some(Self::new())),
            // A list is not in the standard, but in the world.
            Value::Array(values) | Value::List(values) => {
                values.into_iter().map(symbol).collect::<Result<_, _>>().map(Some)
            }
            value => Ok(Some(vec![symbol(value)?])),
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.is_empty() {
            out.push(code::NULL);
            return Ok(());
        }
        types::encode(&Value::Array(self.iter().cloned().map(Value::from).collect()), out)
    }
}

/// States a composite type as the standard's tables do: its descriptor, then each field with its type, and after `=` what
/// it is when absent. A field without that must be there.
macro_rules! composite {
    (
        $(#[$meta:meta])*
        $vis:vis $name:ident = $descriptor:literal {
            $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $absent:expr)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug)]
        #[allow(missing_docs)] // The fields are the standard's.
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $type,)*
        }

        impl $crate::performative::field::Composite for $name {
            const DESCRIPTOR: u8 = $descriptor;
            const FIELDS: u8 = [$(stringify!($field)),*].len() as u8;

            #[inline]
            fn read_fields(
                fields: &mut $crate::types::Fields<'_>,
            ) -> Result<Self, $crate::types::DecodeError> {
                use $crate::performative::field::Field;
                $(let $field = match <$type as Field>::read(fields)? {
                    Some(field) => field,
                    None => $crate::performative::field::absent!($field $(, $absent)?),
                };)*
                Ok(Self { $($field),* })
            }

            #[inline]
            fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), $crate::types::EncodeError> {
                use $crate::performative::field::Field;
                $(self.$field.write(out)?;)*
                Ok(())
            }
        }
    };
}

macro_rules! absent {
    ($field:ident) => {
        return Err($crate::types::DecodeError::Missing(stringify!($field)))
    };
    ($field:ident, $absent:expr) => {
        $absent
    };
}

pub(crate) use {absent, composite};
