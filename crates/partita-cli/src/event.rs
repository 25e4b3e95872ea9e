//! `partita event`: one event, with all that it has.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use partita_core::model::{Body, ConsumerGroup, Event, PartitionId, Position, Properties, SequenceNumber};
use partita_core::source::{EventSource, PartitionReader, ReadRequest};
use partita_sources::eventhubs::EventHubs;

use crate::Failure;
use crate::connection::{ConnectionArgs, HELP, runtime};
use crate::events::{Shown, ShownBody, Typed, escaped, message_to_json};
use crate::output::{Out, Tone, counted};

/// How long an event that is there may take.
const READ_TIME_MAX: Duration = Duration::from_secs(15);
const DUMP_BYTES_PER_LINE: usize = 16;

/// Looks at single events.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: EventCommand,
}

#[derive(Subcommand, Debug)]
enum EventCommand {
    Show(ShowArgs),
}

/// Shows one event: what the hub added, its properties with their types, and its body as JSON, text or bytes.
#[derive(clap::Args, Debug)]
#[command(after_long_help = HELP)]
struct ShowArgs {
    /// The hub
    hub: String,

    /// The partition
    partition: String,

    /// The event's sequence number
    sequence: i64,

    /// The consumer group to read in
    #[arg(long, short, value_name = "GROUP", default_value = ConsumerGroup::DEFAULT)]
    group: String,

    /// How to print: for people, or as JSON for programs
    #[arg(long, short, value_enum, default_value_t = Form::Text, value_name = "FORM")]
    output: Form,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// Does what the command says.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_if_asked();
    let EventCommand::Show(args) = args.command;
    let client = args.connection.client(&args.hub, "event")?;
    let runtime = runtime()?;
    let partition = PartitionId::new(&args.partition);
    let event = runtime.block_on(fetch(&args, &client, &partition))?;
    let mut out = Out::stdout();
    if args.output == Form::Json {
        let text = serde_json::to_string_pretty(&Shown::of(&partition, &event));
        out.line(&text.map_err(|error| Failure::Run(error.to_string()))?)?;
    } else {
        show(&mut out, &args.hub, &partition, &event)?;
    }
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn fetch(args: &ShowArgs, client: &EventHubs, partition: &PartitionId) -> Result<Event, Failure> {
    let known = client.properties().await?.partitions;
    if !known.contains(partition) {
        let last = known.len().saturating_sub(1);
        return Err(Failure::Missing(format!(
            "there is no partition {partition} in hub {}: they are 0 to {last}",
            args.hub
        )));
    }
    let properties = client.partition(partition).await?;
    let (first, wanted) = (properties.first.0, args.sequence);
    let missing = |why: String| {
        Failure::Missing(format!(
            "there is no event {wanted} in partition {partition} of {}: {why}",
            args.hub
        ))
    };
    match properties.end.position {
        None => return Err(missing("it has no event yet".to_owned())),
        _ if properties.is_empty => {
            return Err(missing("all its events were removed by retention, or are lost".to_owned()));
        }
        Some(last) if !(first..=last.sequence.0).contains(&wanted) => {
            return Err(missing(format!("it has {first} to {}", last.sequence)));
        }
        Some(_) => {}
    }
    let request = ReadRequest {
        group: ConsumerGroup::new(&args.group),
        partition: partition.clone(),
        from: Position::at_sequence(SequenceNumber(wanted)),
        owner_level: None,
        name: "partita-event".into(),
        prefetch_events: 1,
        prefetch_bytes: 1,
    };
    let mut reader: Box<dyn PartitionReader> = client.source().open(request).await?;
    // The hub says so at once; an event behind it may be long in coming.
    let lost = || missing("it was removed by retention, or is lost; 'partita hub check' tells".to_owned());
    if reader.take_gap().is_some() {
        return Err(lost());
    }
    let mut events = Vec::new();
    let read = tokio::time::timeout(READ_TIME_MAX, reader.read(1, &mut events)).await;
    read.map_err(|_| {
        Failure::Unreachable(format!("the hub did not send the event within {READ_TIME_MAX:?}"))
    })??;
    match events.into_iter().next() {
        Some(event) if event.sequence_number().0 == wanted => Ok(event),
        _ => Err(lost()),
    }
}

fn show(out: &mut Out, hub: &str, partition: &PartitionId, event: &Event) -> Result<(), Failure> {
    let title = out.paint(Tone::Strong, &format!("event {}", event.sequence_number()));
    out.line(&format!("{title} of partition {partition} of {hub}"))?;
    field(out, "offset", &event.offset().to_string())?;
    field(out, "enqueued", &event.enqueued_time().to_string())?;
    field(out, "key", event.partition_key().unwrap_or("-"))?;
    if let Some(message) = event.message_properties() {
        heading(out, "message")?;
        for (name, value) in message_to_json(message) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            field(out, &name, &text)?;
        }
    }
    pairs(out, "properties", event.properties())?;
    pairs(out, "annotations", event.annotations())?;
    body(out, event)
}

fn heading(out: &mut Out, text: &str) -> Result<(), Failure> {
    out.line("")?;
    let text = out.paint(Tone::Strong, text);
    Ok(out.line(&text)?)
}

fn field(out: &mut Out, name: &str, text: &str) -> Result<(), Failure> {
    let mut tame = String::new();
    escaped(text, &mut tame);
    let name = out.paint(Tone::Faint, &format!("{name:<10}"));
    Ok(out.line(&format!("  {name} {tame}"))?)
}

fn pairs(out: &mut Out, title: &str, properties: &Properties) -> Result<(), Failure> {
    if properties.is_empty() {
        return Ok(());
    }
    heading(out, title)?;
    let tame = |text: &str| {
        let mut tame = String::new();
        escaped(text, &mut tame);
        tame
    };
    let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let names = widest(&mut properties.iter().map(|(name, _)| name.chars().count()));
    let kinds = widest(&mut properties.iter().map(|(_, value)| Typed::name(value).len()));
    for (name, value) in properties.iter() {
        let kind = out.paint(Tone::Faint, &format!("{:<kinds$}", Typed::name(value)));
        out.line(&format!("  {:<names$}  {kind}  {}", tame(name), tame(&Typed::text(value))))?;
    }
    Ok(())
}

fn body(out: &mut Out, event: &Event) -> Result<(), Failure> {
    let Some(bytes) = event.bytes() else {
        heading(out, "body, an AMQP value")?;
        let json = ShownBody::of(event.body()).json();
        return lines(out, &serde_json::to_string_pretty(&json).unwrap_or_default());
    };
    let size = counted(bytes.len() as u64, "byte");
    let kind = match event.body() {
        Body::Data(_) => "",
        Body::DataSections(_) => ", several sections",
        _ => ", an AMQP value",
    };
    let text = std::str::from_utf8(&bytes).ok();
    let json = text.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    match (text, json.filter(|json| json.is_object() || json.is_array())) {
        (_, Some(json)) => {
            heading(out, &format!("body, {size} of JSON{kind}"))?;
            lines(out, &serde_json::to_string_pretty(&json).unwrap_or_default())
        }
        (Some(""), None) => heading(out, &format!("body, empty{kind}")),
        (Some(text), None) if is_text(text) => {
            heading(out, &format!("body, {size} of text{kind}"))?;
            lines(out, text)
        }
        _ => {
            heading(out, &format!("body, {size}{kind}"))?;
            lines(out, &dump(&bytes))
        }
    }
}

/// Whether it is for people to read.
fn is_text(text: &str) -> bool {
    !text.chars().any(|letter| letter.is_control() && !['\n', '\r', '\t'].contains(&letter))
}

fn lines(out: &mut Out, text: &str) -> Result<(), Failure> {
    for line in text.lines() {
        let mut tame = String::new();
        escaped(line, &mut tame);
        out.line(&format!("  {tame}"))?;
    }
    Ok(())
}

/// Bytes in hexadecimal, with what of them can be read beside.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(DUMP_BYTES_PER_LINE).enumerate() {
        let mut hex = String::new();
        for (at, byte) in bytes.iter().enumerate() {
            let gap = if at == DUMP_BYTES_PER_LINE / 2 { "  " } else { " " };
            // Writing to a string does not fail.
            let _ = write!(hex, "{gap}{byte:02x}");
        }
        let readable =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        let shown: String = bytes.iter().map(readable).collect();
        let width = 3 * DUMP_BYTES_PER_LINE + 1;
        let _ = writeln!(text, "{:08x} {hex:<width$}  |{shown}|", line * DUMP_BYTES_PER_LINE);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_dumped_sixteen_to_a_line() {
        let bytes: Vec<u8> = (0x3a..0x4c).chain([0xff]).collect();
        assert_eq!(
            dump(&bytes),
            "00000000  3a 3b 3c 3d 3e 3f 40 41  42 43 44 45 46 47 48 49  |:;<=>?@ABCDEFGHI|\n\
             00000010  4a 4b ff                                          |JK.|\n"
        );
    }
}
