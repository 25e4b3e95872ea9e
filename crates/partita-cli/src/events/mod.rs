//! Events as text: lines of JSON, and templates.

mod json;
mod template;
mod value;

pub(crate) use self::json::{Line, Record, Shown, ShownBody, message_to_json};
pub(crate) use self::template::Template;
pub(crate) use self::value::{Typed, escaped};
