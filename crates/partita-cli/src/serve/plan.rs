//! The command line, checked: everything that can be known to be wrong before anything is touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use partita_hub::listener::transport::Origins;
use partita_hub::listener::transport::tls::{ServerConfig, server_config_from_files};
use partita_hub::log::{Durability, Retention};
use partita_hub::service::auth::{Key, Rights, Rule, RuleScope, Rules, WELL_KNOWN_KEY, WELL_KNOWN_NAME};

use super::connect::Identity;
use super::hubs::HubSpec;
use super::keys::{KeyPlace, RuleSpec};
use super::listen::Listen;
use super::{Args, Fsync, config, data};

/// What each hub keeps at most in memory, if nothing else is said.
pub(crate) const MEMORY_HUB_BYTES: u64 = 256 << 20;

/// A start that makes sense.
pub(crate) struct Plan {
    /// None: one by default, if there are none.
    pub(crate) hubs: Vec<HubSpec>,
    pub(crate) retention: Option<Duration>,
    pub(crate) retention_size: Option<u64>,
    pub(crate) storage: Storage,
    pub(crate) listen: Listen,
    pub(crate) port: u16,
    pub(crate) http_port: u16,
    pub(crate) tls_port: u16,
    pub(crate) tls: Tls,
    pub(crate) rules: Rules,
    pub(crate) origins: Origins,
    pub(crate) identity: Identity,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) quiet: bool,
}

/// Where events go.
pub(crate) enum Storage {
    Memory { hub_bytes_max: u64 },
    Disk { dir: PathBuf, durability: Durability, accept_loss: Vec<String>, reset: bool, yes: bool },
}

/// Where the certificate comes from.
pub(crate) enum Tls {
    None,
    Given(Arc<ServerConfig>),
    SelfSigned { dir: PathBuf, names: Vec<String> },
}

impl Plan {
    pub(crate) fn new(args: Args) -> Result<Self, String> {
        let hubs = hubs(args.hubs, args.config.as_deref())?;
        let (rules, identity) = rules(args.key_file, &args.rules)?;
        let storage = if args.memory {
            if args.fsync != Fsync::Always {
                return Err("--memory writes nothing to a disk: leave out --fsync".to_owned());
            }
            Storage::Memory { hub_bytes_max: args.retention_size.unwrap_or(MEMORY_HUB_BYTES) }
        } else {
            let durability = match args.fsync {
                Fsync::Always => Durability::Always,
                Fsync::Interval if args.fsync_interval.is_zero() => {
                    return Err(
                        "--fsync-interval 0s is --fsync always: choose that, or a longer time".to_owned()
                    );
                }
                Fsync::Interval => Durability::Interval(args.fsync_interval),
                Fsync::Never => Durability::Never,
            };
            let dir = args.data.or_else(data::named_dir).unwrap_or_else(data::default_dir);
            // A later message or a client in another directory has to find it.
            let dir = std::path::absolute(&dir).unwrap_or(dir);
            let accept_loss = args.accept_loss;
            Storage::Disk { dir, durability, accept_loss, reset: args.reset, yes: args.yes }
        };
        let tls = match (args.tls_cert, args.tls_key) {
            (Some(chain), Some(key)) => {
                Tls::Given(server_config_from_files(&chain, &key).map_err(|error| error.to_string())?)
            }
            _ if args.tls_self_signed => {
                let dir = args.tls_dir.unwrap_or_else(|| storage.tls_dir());
                Tls::SelfSigned { dir: std::path::absolute(&dir).unwrap_or(dir), names: args.tls_names }
            }
            _ => Tls::None,
        };
        let plan = Self {
            hubs,
            retention: args.retention,
            retention_size: args.retention_size,
            storage,
            listen: args.listen,
            port: args.port,
            http_port: args.http_port,
            tls_port: args.tls_port,
            tls,
            rules,
            origins: Origins::new(args.allow_origins),
            identity,
            ready_file: args.ready_file,
            quiet: args.quiet,
        };
        plan.retention(None).check().map_err(|error| error.to_string())?;
        Ok(plan)
    }

    /// What a hub keeps, given what it kept so far, or what a new one keeps.
    pub(crate) fn retention(&self, so_far: Option<Retention>) -> Retention {
        let so_far = so_far.unwrap_or_default();
        Retention {
            age: self.retention.unwrap_or(so_far.age),
            bytes_max: self.retention_size.or(so_far.bytes_max),
        }
    }
}

impl Storage {
    fn tls_dir(&self) -> PathBuf {
        match self {
            Self::Disk { dir, .. } => dir.join("tls"),
            Self::Memory { .. } => data::default_dir().with_file_name("tls"),
        }
    }
}

/// The hubs of both, each once.
fn hubs(mut hubs: Vec<HubSpec>, file: Option<&Path>) -> Result<Vec<HubSpec>, String> {
    if let Some(path) = file {
        let text = crate::named_files::read_text(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let found = config::parse(&text).map_err(|mistake| format!("{}, {mistake}", path.display()))?;
        hubs.extend(
            found
                .into_iter()
                .map(|hub| HubSpec { origin: format!("{}, {}", path.display(), hub.origin), ..hub }),
        );
    }
    for (at, hub) in hubs.iter().enumerate() {
        if let Some(other) = hubs[..at].iter().find(|other| other.name.eq_ignore_ascii_case(&hub.name)) {
            return Err(format!(
                "hub '{}' is asked for twice, by {} and by {}",
                hub.name, other.origin, hub.origin
            ));
        }
    }
    Ok(hubs)
}

/// The rules, and the one that clients are told of: the first that manages all hubs, or else the first.
fn rules(key_file: Option<PathBuf>, specs: &[String]) -> Result<(Rules, Identity), String> {
    let root = key_file.map(|file| RuleSpec {
        name: WELL_KNOWN_NAME.to_owned(),
        rights: super::keys::Rights { listen: true, send: true, manage: true },
        hub: None,
        key: KeyPlace::from(&*file.to_string_lossy()),
    });
    let mut rules = Vec::new();
    let mut identities = Vec::new();
    let specs = specs.iter().map(|text| text.parse().map_err(|said| format!("--rule: {said}")));
    for spec in root.map(Ok).into_iter().chain(specs) {
        let spec: RuleSpec = spec?;
        let key = spec.key.read().map_err(|said| format!("rule '{}': {said}", spec.name))?;
        let rights =
            Rights { listen: spec.rights.listen, send: spec.rights.send, manage: spec.rights.manage };
        let scope = spec.hub.clone().map_or(RuleScope::Namespace, RuleScope::Hub);
        rules.push(Rule { name: spec.name.clone(), key: Key::new(key.clone()), rights, scope });
        let secret_from = (key != WELL_KNOWN_KEY).then(|| spec.key.to_string());
        let whole = spec.rights.manage && spec.hub.is_none();
        identities.push((whole, Identity { rule: spec.name, key, hub: spec.hub, secret_from }));
    }
    // Stable: the first of those that manage all, then the first of the rest.
    identities.sort_by_key(|(whole, _)| !whole);
    match identities.into_iter().next() {
        Some((_, identity)) => Ok((Rules::new(rules), identity)),
        None => {
            let identity = Identity {
                rule: WELL_KNOWN_NAME.to_owned(),
                key: WELL_KNOWN_KEY.to_owned(),
                hub: None,
                secret_from: None,
            };
            Ok((Rules::default(), identity))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: Args,
    }

    fn plan(args: &[&str]) -> Result<Plan, String> {
        Plan::new(Cli::try_parse_from([&["serve"], args].concat()).map_err(|error| error.to_string())?.serve)
    }

    fn refused(args: &[&str]) -> String {
        plan(args).err().unwrap_or_else(|| panic!("{args:?} was accepted"))
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let plan = plan(&[]).unwrap();
        assert!(plan.hubs.is_empty() && plan.listen.is_local());
        assert_eq!((plan.port, plan.http_port, plan.tls_port), (5672, 5300, 5671));
        assert!(matches!(plan.storage, Storage::Disk { durability: Durability::Always, reset: false, .. }));
        assert!(plan.rules.has_well_known_key());
        assert_eq!(plan.retention(None), Retention::default());
    }

    #[test]
    fn options_that_contradict_one_another_are_refused() {
        assert!(refused(&["--memory", "--data", "x"]).contains("cannot be used with"));
        assert!(refused(&["--memory", "--reset"]).contains("cannot be used with"));
        assert!(refused(&["--accept-loss", "eh1", "--reset"]).contains("cannot be used with"));
        assert!(refused(&["--retention", "213503982334d"]).contains("choose a shorter one"));
        assert!(refused(&["--retention-size", "16777215TiB"]).contains("choose a smaller one"));
        assert!(refused(&["--memory", "--fsync", "never"]).contains("leave out --fsync"));
        assert!(refused(&["--fsync", "interval", "--fsync-interval", "0s"]).contains("--fsync always"));
        assert!(refused(&["--yes"]).contains("--reset"));
        assert!(refused(&["--tls-cert", "x"]).contains("--tls-key"));
        assert!(refused(&["--tls-name", "x"]).contains("--tls-self-signed"));
        for origin in ["null", "*", "app.example", "https://app.example/page"] {
            assert!(refused(&["--allow-origin", origin]).contains("such as https://app.example"), "{origin}");
        }
        assert!(
            refused(&["--hub", "a:1", "--hub", "A:2"]).contains("hub 'A' is asked for twice, by --hub a:1")
        );
    }

    #[test]
    fn a_key_of_ones_own_takes_the_place_of_the_one_everybody_knows() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "s3cret\n").unwrap();
        let file = file.to_str().unwrap();
        let own = plan(&["--key-file", file, "--rule", &format!("in:send:eh1={file}")]).unwrap();
        assert!(!own.rules.has_well_known_key());
        assert_eq!(own.rules.iter().len(), 2);
        assert_eq!((own.identity.rule.as_str(), own.identity.key.as_str()), (WELL_KNOWN_NAME, "s3cret"));
        let scoped =
            plan(&["--rule", &format!("in:send:eh1={file}"), "--rule", &format!("all:manage={file}")]);
        assert_eq!(scoped.unwrap().identity.rule, "all", "the rule that can do most is shown");
        assert!(refused(&["--key-file", "/no/such/key"]).contains("name the file that it is in"));
    }

    #[test]
    fn retention_that_is_not_given_stays() {
        let kept = Retention { age: Duration::from_secs(60), bytes_max: Some(7) };
        assert_eq!(plan(&[]).unwrap().retention(Some(kept)), kept);
        let longer = plan(&["--retention", "7d"]).unwrap().retention(Some(kept));
        assert_eq!(longer, Retention { age: Duration::from_secs(7 * 86_400), bytes_max: Some(7) });
        let smaller = plan(&["--retention-size", "10GiB"]).unwrap().retention(None);
        assert_eq!(smaller, Retention { bytes_max: Some(10 << 30), ..Retention::default() });
    }

    #[test]
    fn a_mistake_in_a_file_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("Config.json");
        let name = file.to_str().unwrap();
        assert!(refused(&["--config", name]).starts_with(&format!("cannot read {name}: ")));
        std::fs::write(&file, "{}").unwrap();
        assert_eq!(refused(&["--config", name]), format!("{name}, line 1: the file has no UserConfig"));
    }
}
