//! Shared access rules from the command line. Keys come from files or the environment: a command line can be read by
//! every process of the machine.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::named_files;

/// Where a key is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyPlace {
    File(PathBuf),
    Variable(String),
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
        }
    }
}

impl From<&str> for KeyPlace {
    /// Reads `env:VARIABLE` or a path.
    fn from(text: &str) -> Self {
        match text.strip_prefix("env:") {
            Some(name) => Self::Variable(name.to_owned()),
            None => Self::File(PathBuf::from(text)),
        }
    }
}

impl KeyPlace {
    /// The key, or one sentence about what is wrong with it; the key is never in it. Nor is a path that leads nowhere: it may
    /// be the key itself, where its file should be.
    pub(crate) fn read(&self) -> Result<String, String> {
        let text = match self {
            Self::File(path) => named_files::read_text(path).map_err(|error| match path.exists() {
                true => format!("cannot read the key in {self}: {error}"),
                false => format!(
                    "cannot read the key: {error}; name the file that it is in, or env: and the variable (what was given is \
                     not repeated, because it may be the key itself)"
                ),
            })?,
            Self::Variable(name) => std::env::var(name).map_err(|_| match is_a_name(name) {
                true => format!("cannot read the key in {self}: the variable is not set, or no text"),
                false => "cannot read the key: env: is followed by the name of a variable".to_owned(),
            })?,
        };
        let key = text.trim_end_matches(['\r', '\n']);
        if key.is_empty() {
            return Err(format!("the key in {self} is empty"));
        }
        // A connection string would end there.
        if key.contains(|c: char| c == ';' || c.is_whitespace() || c.is_control()) {
            return Err(format!(
                "the key in {self} has a space, a line break or a ';' in it: use one without"
            ));
        }
        Ok(key.to_owned())
    }
}

/// Whether this is how variables are named, and not a key.
fn is_a_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What a rule allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) listen: bool,
    pub(crate) send: bool,
    pub(crate) manage: bool,
}

/// A rule that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RuleSpec {
    pub(crate) name: String,
    pub(crate) rights: Rights,
    /// All hubs if none is named.
    pub(crate) hub: Option<String>,
    pub(crate) key: KeyPlace,
}

impl FromStr for RuleSpec {
    type Err = String;

    /// Reads `NAME:RIGHTS[:HUB]=KEYFILE`, or `=env:VARIABLE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let usage =
            "write NAME:RIGHTS=KEYFILE or NAME:RIGHTS:HUB=KEYFILE, such as sensors:send:eh1=sensors.key";
        let (rule, key) = text.split_once('=').filter(|(_, key)| !key.is_empty()).ok_or(usage)?;
        let mut parts = rule.split(':');
        let (name, rights, hub) =
            (parts.next().unwrap_or_default(), parts.next().ok_or(usage)?, parts.next());
        if parts.next().is_some() {
            return Err(usage.to_owned());
        }
        if name.is_empty() || name.contains(|c: char| c == ';' || c.is_whitespace() || c.is_control()) {
            return Err("a rule's name has no space, no ';' and no ':' in it".to_owned());
        }
        if let Some(hub) = hub {
            super::hubs::check_name(hub)?;
        }
        let mut given = Rights::default();
        for right in rights.split(',').map(str::trim) {
            match right.to_ascii_lowercase().as_str() {
                "listen" => given.listen = true,
                "send" => given.send = true,
                // As in the service, it includes the others.
                "manage" => given = Rights { listen: true, send: true, manage: true },
                _ => {
                    return Err(
                        "a right is listen, send or manage: write them with commas between".to_owned()
                    );
                }
            }
        }
        Ok(Self {
            name: name.to_owned(),
            rights: given,
            hub: hub.map(str::to_owned),
            key: KeyPlace::from(key),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule: RuleSpec = "sensors:send:eh1=/run/secrets/sensors".parse().unwrap();
        assert_eq!((rule.name.as_str(), rule.hub.as_deref()), ("sensors", Some("eh1")));
        assert_eq!(rule.rights, Rights { send: true, ..Rights::default() });
        assert_eq!(rule.key, KeyPlace::File("/run/secrets/sensors".into()));
        let rule: RuleSpec = "apps:listen,Send=env:APPS_KEY".parse().unwrap();
        assert_eq!(rule.rights, Rights { listen: true, send: true, manage: false });
        assert_eq!((rule.hub, rule.key), (None, KeyPlace::Variable("APPS_KEY".into())));
        let rule: RuleSpec = "root:manage=a=b".parse().unwrap();
        assert_eq!(rule.rights, Rights { listen: true, send: true, manage: true });
        assert_eq!(rule.key, KeyPlace::File("a=b".into()));
    }

    #[test]
    fn what_is_wrong_with_a_rule_is_said() {
        let refused = |text: &str| text.parse::<RuleSpec>().unwrap_err();
        for text in ["", "x", "x=key", "x:send", "x:send=", "x:send:eh1:y=key"] {
            assert!(refused(text).contains("such as sensors:send:eh1=sensors.key"), "{text}");
        }
        assert!(refused("x:fly=key").contains("a right is listen, send or manage"));
        assert!(refused("x:send:/=key").contains("names are of letters"));
        assert!(refused(":send=key").contains("a rule's name"));
    }

    #[test]
    fn keys_are_read_without_their_line_end_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let place = KeyPlace::File(path.clone());
        assert!(place.read().unwrap_err().contains("name the file that it is in"));
        let key_itself = KeyPlace::from("c2VjcmV0/c2VjcmV0=");
        assert!(!key_itself.read().unwrap_err().contains("c2Vj"));
        assert!(KeyPlace::File(dir.path().into()).read().unwrap_err().contains("cannot read the key in /"));
        std::fs::write(&path, "s3cret+/=\r\n").unwrap();
        assert_eq!(place.read().unwrap(), "s3cret+/=");
        std::fs::write(&path, "\n").unwrap();
        assert!(place.read().unwrap_err().ends_with("is empty"));
        for bad in ["s3 cret", "s3cret;x", "s3cret\nmore"] {
            std::fs::write(&path, bad).unwrap();
            let said = place.read().unwrap_err();
            assert!(said.contains("use one without") && !said.contains("cret"), "{said}");
        }
        let unset = KeyPlace::Variable("PARTITA_NO_SUCH_VARIABLE".into()).read().unwrap_err();
        assert!(unset.contains("$PARTITA_NO_SUCH_VARIABLE") && unset.contains("not set"), "{unset}");
    }
}
