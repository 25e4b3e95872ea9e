//! `--format`: text with holes for what an event has.

use std::str::FromStr;

use partita_core::model::{Event, PartitionId};

use super::ShownBody;
use super::value::Typed;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Body,
    Partition,
    Sequence,
    Offset,
    Enqueued,
    Key,
    Property(String),
}

/// A line for each event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template(Vec<Piece>);

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => plain.push(match letters.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some('0') => '\0',
                    Some('\\') => '\\',
                    _ => return Err("after \\ comes n, t, r, 0 or \\".to_owned()),
                }),
                '{' | '}' if letters.next_if_eq(&letter).is_some() => plain.push(letter),
                '}' => return Err("a } that closes nothing is written }}".to_owned()),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match letters.next() {
                            Some('}') => break,
                            Some(letter) => name.push(letter),
                            None => return Err(format!("{{{name} has no }}; a {{ itself is written {{{{")),
                        }
                    }
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(hole(&name)?);
                }
                letter => plain.push(letter),
            }
        }
        pieces.push(Piece::Text(plain));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Ok(Self(pieces))
    }
}

fn hole(name: &str) -> Result<Piece, String> {
    Ok(match name {
        "body" => Piece::Body,
        "partition" => Piece::Partition,
        "sequence" => Piece::Sequence,
        "offset" => Piece::Offset,
        "enqueued" => Piece::Enqueued,
        "key" => Piece::Key,
        _ => match name.strip_prefix("property:") {
            Some(name) => Piece::Property(name.to_owned()),
            None => {
                return Err(format!(
                    "there is no {{{name}}}: use {{body}}, {{partition}}, {{sequence}}, {{offset}}, {{enqueued}}, \
                     {{key}} or {{property:NAME}}"
                ));
            }
        },
    })
}

impl Template {
    /// Fills it; what an event does not have is left empty.
    pub(crate) fn fill(&self, partition: &PartitionId, event: &Event, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend(text.as_bytes()),
                Piece::Body => body(event, out),
                Piece::Partition => out.extend(partition.as_str().as_bytes()),
                Piece::Sequence => out.extend(event.sequence_number().to_string().as_bytes()),
                Piece::Offset => out.extend(event.offset().to_string().as_bytes()),
                Piece::Enqueued => out.extend(event.enqueued_time().to_string().as_bytes()),
                Piece::Key => out.extend(event.partition_key().unwrap_or_default().as_bytes()),
                Piece::Property(name) => {
                    if let Some(value) = event.properties().get(name) {
                        out.extend(Typed::text(value).as_bytes());
                    }
                }
            }
        }
    }

    /// Bodies alone.
    pub(crate) fn body() -> Self {
        Self(vec![Piece::Body])
    }
}

/// The body's bytes; of one that has none, its JSON.
fn body(event: &Event, out: &mut Vec<u8>) {
    match event.bytes() {
        Some(bytes) => out.extend(&*bytes),
        None => out.extend(ShownBody::of(event.body()).json().to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Offset, SequenceNumber, Timestamp, Value};

    use super::*;

    fn filled(template: &str) -> String {
        let event = Event::builder("hello").partition_key("k").property("n", 5_i32).property("s", "text");
        let event = event.at(SequenceNumber(7), Offset::number(70), Timestamp(0));
        let mut out = Vec::new();
        template.parse::<Template>().unwrap().fill(&"3".into(), &event, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn holes_are_filled() {
        assert_eq!(
            filled(
                "{partition}/{sequence}@{offset} {enqueued} {key}: {body} {property:n}{property:s}{property:x}"
            ),
            "3/7@70 1970-01-01T00:00:00.000Z k: hello 5text"
        );
        assert_eq!(filled(r"{{{body}}}\t\n\\"), "{hello}\t\n\\");
    }

    #[test]
    fn a_body_without_bytes_is_its_json() {
        let event = Event::builder(Value::Int(5)).at(SequenceNumber(0), Offset::number(0), Timestamp(0));
        let mut out = Vec::new();
        Template::body().fill(&"0".into(), &event, &mut out);
        assert_eq!(out, br#"{"type":"int","value":5}"#);
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("{bodi}", "there is no {bodi}: use {body}"),
            ("{body", "has no }"),
            ("body}", "closes nothing"),
            (r"\x", "after \\ comes"),
        ] {
            let said = text.parse::<Template>().expect_err(text);
            assert!(said.contains(part), "{said}");
        }
    }
}
