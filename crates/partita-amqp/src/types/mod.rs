//! The type system: every width is read, the shortest is written.

mod array;
mod check;
pub mod code;
mod decode;
mod encode;
mod fields;
mod symbol;
#[cfg(test)]
mod tests;

pub use check::{Checker, RawMap, text_of};
pub use decode::Decoder;
pub(crate) use encode::compound;
pub use encode::{binary, encode, encode_list, smallulong_descriptor, symbol, text};
pub(crate) use fields::Fields;
pub use symbol::Symbol;
use thiserror::Error;

/// How deep lists, maps, arrays and described values may lie in one another.
pub const DEPTH_MAX: usize = 32;

/// How many values one decoder makes at most, inner ones counted: an array of nulls takes no bytes for its elements.
pub const VALUES_MAX: usize = 1 << 20;

/// Why bytes are no AMQP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends within a value.
    #[error("the bytes end within a value")]
    Truncated,
    /// No type has this code.
    #[error("no AMQP type has the code 0x{0:02x}")]
    UnknownCode(u8),
    /// The bytes cannot be of their type: text that is not UTF-8, a boolean of 2.
    #[error("the bytes are not a valid {0}")]
    BadValue(&'static str),
    /// Sizes, counts and contents do not agree.
    #[error("size or count of a {0} does not fit its content")]
    BadSize(&'static str),
    /// More than [`DEPTH_MAX`].
    #[error("values lie more than {DEPTH_MAX} deep in one another")]
    TooDeep,
    /// More than [`VALUES_MAX`].
    #[error("there are more than {VALUES_MAX} values")]
    TooMany,
    /// Another kind of value belongs here.
    #[error("a {0} belongs here")]
    Expected(&'static str),
    /// A field that has no default is not there.
    #[error("the field {0} is missing")]
    Missing(&'static str),
}

/// Why a value cannot be written as AMQP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// More than [`DEPTH_MAX`].
    #[error("values lie more than {DEPTH_MAX} deep in one another")]
    TooDeep,
    /// The elements of an array are of one type.
    #[error("the elements of an array are of different types")]
    MixedArray,
    /// Symbols are ASCII.
    #[error("a symbol, or the name of an annotation, is not ASCII")]
    BadSymbol,
    /// No length field can say it.
    #[error("a value is larger than 4 GiB")]
    TooLarge,
    /// A type that this version does not know.
    #[error("the value is of a type that has no encoding here")]
    Unknown,
}
