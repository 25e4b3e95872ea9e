//! `Config.json`, as the official emulator reads it. Its limits do not hold here, and fields nobody knows are passed
//! over; what is wrong is said with its place in the file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

use super::hubs::{HubSpec, check_partitions};

/// What is wrong in the file, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    line: usize,
    /// The way to the value, such as `UserConfig.NamespaceConfig[0]`; empty for the file itself.
    path: String,
    what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

/// The hubs that a `Config.json` asks for, in its order.
pub(crate) fn parse(text: &str) -> Result<Vec<HubSpec>, Mistake> {
    let text = text.trim_start_matches('\u{feff}');
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| Mistake {
        line: error.line(),
        path: String::new(),
        what: format!("is not JSON ({error})"),
    })?;
    let root = Node { raw, path: String::new(), text };
    let namespaces = root.field("UserConfig")?.field("NamespaceConfig")?;
    let mut hubs: Vec<HubSpec> = Vec::new();
    for namespace in namespaces.items("a list with one namespace")? {
        if let Some(kind) = namespace.optional("Type")?
            && !kind.string()?.eq_ignore_ascii_case("EventHub")
        {
            return Err(kind.mistake(format!("is {}: only EventHub is served", kind.raw)));
        }
        for entity in namespace.field("Entities")?.items("a list of hubs")? {
            let hub = hub(&entity)?;
            if let Some(other) = hubs.iter().find(|other| other.name.eq_ignore_ascii_case(&hub.name)) {
                let text = format!(
                    "is '{}', as is the hub of {}: names compare without case",
                    hub.name, other.origin
                );
                return Err(entity.field("Name")?.mistake(text));
            }
            hubs.push(hub);
        }
    }
    if hubs.is_empty() {
        return Err(namespaces.mistake("has no hub: add one to Entities"));
    }
    Ok(hubs)
}

fn hub(entity: &Node<'_>) -> Result<HubSpec, Mistake> {
    let name = entity.field("Name")?.name()?;
    let count = entity.field("PartitionCount")?;
    let partitions = match count.value() {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text,
        _ => return Err(count.mistake("must be a number")),
    };
    let partitions = check_partitions(partitions.trim())
        .map_err(|what| count.mistake(format!("is {}: {what}", count.raw)))?;
    let mut groups: Vec<String> = Vec::new();
    if let Some(list) = entity.optional("ConsumerGroups")? {
        for group in list.items("a list of consumer groups")? {
            let group = group.field("Name")?;
            // Built in, and some files say it nevertheless.
            if group.string()?.eq_ignore_ascii_case("$Default") {
                continue;
            }
            let name = group.name()?;
            if !groups.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
                groups.push(name);
            }
        }
    }
    Ok(HubSpec { name, partitions, groups, origin: format!("line {}", entity.line()) })
}

/// A value of the file that knows where it is.
struct Node<'a> {
    raw: &'a RawValue,
    path: String,
    text: &'a str,
}

impl<'a> Node<'a> {
    fn line(&self) -> usize {
        let offset = self.raw.get().as_ptr() as usize - self.text.as_ptr() as usize;
        1 + self.text[..offset].matches('\n').count()
    }

    fn mistake(&self, what: impl Into<String>) -> Mistake {
        Mistake { line: self.line(), path: self.path.clone(), what: what.into() }
    }

    fn value(&self) -> Value {
        serde_json::from_str(self.raw.get()).unwrap_or(Value::Null)
    }

    /// A field by its name; by its name in another case, as the emulator's reader takes it, if there is none.
    fn optional(&self, name: &str) -> Result<Option<Node<'a>>, Mistake> {
        let fields: BTreeMap<Cow<'a, str>, &'a RawValue> =
            serde_json::from_str(self.raw.get()).map_err(|_| self.mistake(self.must_be("an object")))?;
        let exact = fields.get(name);
        let found = exact
            .or_else(|| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, raw)| raw));
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Ok(found.filter(|raw| raw.get() != "null").map(|raw| Node { raw, path, text: self.text }))
    }

    fn field(&self, name: &str) -> Result<Node<'a>, Mistake> {
        match self.optional(name)? {
            Some(node) => Ok(node),
            None if self.path.is_empty() => Err(self.mistake(format!("the file has no {name}"))),
            None => Err(self.mistake(format!("has no {name}"))),
        }
    }

    fn items(&self, wanted: &str) -> Result<Vec<Node<'a>>, Mistake> {
        let items: Vec<&'a RawValue> =
            serde_json::from_str(self.raw.get()).map_err(|_| self.mistake(self.must_be(wanted)))?;
        let node = |(at, raw)| Node { raw, path: format!("{}[{at}]", self.path), text: self.text };
        Ok(items.into_iter().enumerate().map(node).collect())
    }

    fn string(&self) -> Result<String, Mistake> {
        match self.value() {
            Value::String(text) => Ok(text),
            _ => Err(self.mistake("must be a text in quotes")),
        }
    }

    /// The name of a hub or group.
    fn name(&self) -> Result<String, Mistake> {
        let name = self.string()?;
        super::hubs::check_name(&name).map_err(|what| self.mistake(format!("is {}: {what}", self.raw)))?;
        Ok(name)
    }

    fn must_be(&self, wanted: &str) -> String {
        if self.path.is_empty() { format!("the file must be {wanted}") } else { format!("must be {wanted}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(entities: &str) -> String {
        format!(
            r#"{{
  "UserConfig": {{
    "NamespaceConfig": [
      {{
        "Type": "EventHub",
        "Name": "emulatorNs1",
        "Entities": [
{entities}
        ]
      }}
    ],
    "LoggingConfig": {{ "Type": "File" }}
  }}
}}"#
        )
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_emulators_own_file_is_read() {
        let text =
            file(r#"{ "Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [ { "Name": "cg1" } ] }"#);
        let hubs = parse(&text).unwrap();
        assert_eq!(hubs.len(), 1);
        assert_eq!((hubs[0].name.as_str(), hubs[0].partitions), ("eh1", 2));
        assert_eq!(hubs[0].groups, ["cg1"]);
        assert_eq!(parse(&format!("\u{feff}{text}")).unwrap(), hubs, "an editor's mark at the beginning");
    }

    #[test]
    fn numbers_may_be_numbers_fields_unknown_and_limits_passed() {
        let one = |at: u32| {
            format!(
                r#"{{ "name": "hub-{at}", "PartitionCount": 100, "Color": "red", "ConsumerGroups": null }}"#
            )
        };
        let text = file(&(0..50).map(one).collect::<Vec<_>>().join(",\n"));
        let hubs = parse(&text).unwrap();
        assert_eq!(hubs.len(), 50, "the emulator stops at ten");
        assert!(hubs.iter().all(|hub| hub.partitions == 100 && hub.groups.is_empty()));
    }

    #[test]
    fn the_default_group_and_repeated_ones_are_passed_over() {
        let text = file(
            r#"{ "Name": "eh1", "PartitionCount": 2,
                 "ConsumerGroups": [ { "Name": "$default" }, { "Name": "cg1" }, { "Name": "CG1" } ] }"#,
        );
        assert_eq!(parse(&text).unwrap()[0].groups, ["cg1"]);
    }

    #[test]
    fn every_mistake_is_one_sentence_with_its_place() {
        let entity = |text: &str| refused(&file(text));
        let at = "line 8: UserConfig.NamespaceConfig[0].Entities[0]";
        assert_eq!(entity(r#"{ "Name": "eh1" }"#), format!("{at} has no PartitionCount"));
        assert_eq!(entity(r#"{ "PartitionCount": 1 }"#), format!("{at} has no Name"));
        assert_eq!(
            entity(r#"{ "Name": "eh1", "PartitionCount": "two" }"#),
            format!(r#"{at}.PartitionCount is "two": a hub has 1 to 1024 partitions"#)
        );
        assert_eq!(
            entity(r#"{ "Name": "eh1", "PartitionCount": 0 }"#),
            format!("{at}.PartitionCount is 0: a hub has 1 to 1024 partitions")
        );
        assert_eq!(
            entity(r#"{ "Name": "eh1", "PartitionCount": [] }"#),
            format!("{at}.PartitionCount must be a number")
        );
        assert_eq!(
            entity(r#"{ "Name": "e/h", "PartitionCount": 1 }"#),
            format!(
                r#"{at}.Name is "e/h": names are of letters, digits, '.', '-' and '_', and begin and end with a letter or digit"#
            )
        );
        assert_eq!(
            entity(r#"{ "Name": 1, "PartitionCount": 1 }"#),
            format!("{at}.Name must be a text in quotes")
        );
        assert_eq!(
            entity("{ \"Name\": \"eh1\", \"PartitionCount\": 1,\n \"ConsumerGroups\": [ {} ] }"),
            "line 9: UserConfig.NamespaceConfig[0].Entities[0].ConsumerGroups[0] has no Name"
        );
        assert_eq!(
            entity(
                "{ \"Name\": \"eh1\", \"PartitionCount\": 1 },\n{ \"Name\": \"EH1\", \"PartitionCount\": 1 }"
            ),
            "line 9: UserConfig.NamespaceConfig[0].Entities[1].Name is 'EH1', as is the hub of line 8: names compare \
             without case"
        );
        assert_eq!(entity("7"), format!("{at} must be an object"));
        assert_eq!(entity(""), "line 3: UserConfig.NamespaceConfig has no hub: add one to Entities");
    }

    #[test]
    fn other_files_are_told_apart() {
        assert_eq!(refused("{}"), "line 1: the file has no UserConfig");
        assert_eq!(refused("[]"), "line 1: the file must be an object");
        assert_eq!(refused("{\"UserConfig\": {}}"), "line 1: UserConfig has no NamespaceConfig");
        assert_eq!(
            refused("{\"UserConfig\": {\n\"NamespaceConfig\": {}}}"),
            "line 2: UserConfig.NamespaceConfig must be a list with one namespace"
        );
        let other = file("").replace("EventHub", "ServiceBus");
        assert_eq!(
            refused(&other),
            "line 5: UserConfig.NamespaceConfig[0].Type is \"ServiceBus\": only EventHub is served"
        );
        assert!(
            refused("{\n  \"UserConfig\": }").starts_with("line 2: is not JSON (expected value at line 2")
        );
    }
}
