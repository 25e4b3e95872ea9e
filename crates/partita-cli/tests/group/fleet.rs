//! Processors of the test's own, over AMQP.

use std::path::PathBuf;
use std::process::{Command, Output};

use partita::eventhubs::{ConnectionString, EventHubs};
use partita::sqlite::SqliteStore;
use partita::{Checkpoint, Context, Event, HandlerResult, Processor, ProcessorHandle};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::{Hub, partita, text, wait_for};

/// A hub, a store, and what runs processors.
pub(crate) struct Fleet {
    pub(crate) hub: Hub,
    store: PathBuf,
    runtime: Runtime,
}

impl Fleet {
    pub(crate) fn new(hub: &str) -> Self {
        let hub = Hub::start(&["--memory", "--hub", hub]);
        Self { store: hub.path("checkpoints.db"), hub, runtime: Runtime::new().unwrap() }
    }

    /// Another hub of the same host, with the store of this one.
    pub(crate) fn beside(&self, hub: &str) -> Self {
        Self { store: self.store.clone(), ..Self::new(hub) }
    }

    fn connection(&self) -> &str {
        self.hub.ready["connection_string"].as_str().unwrap()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.store.clone()
    }

    /// What the group's records are kept under.
    pub(crate) fn namespace(&self) -> String {
        self.connection().parse::<ConnectionString>().unwrap().namespace().to_string()
    }

    /// A processor that checkpoints every event.
    pub(crate) fn start(&self, name: &str) -> ProcessorHandle {
        self.start_with(name, |_| Ok(()))
    }

    /// The same with a handler.
    pub(crate) fn start_with(
        &self,
        name: &str,
        handle: impl Fn(&Event) -> HandlerResult + Clone + Send + Sync + 'static,
    ) -> ProcessorHandle {
        self.try_start_with(name, handle).unwrap()
    }

    /// The same, or why it did not start.
    pub(crate) fn try_start_with(
        &self,
        name: &str,
        handle: impl Fn(&Event) -> HandlerResult + Clone + Send + Sync + 'static,
    ) -> Result<ProcessorHandle, String> {
        let connection: ConnectionString = self.connection().parse().unwrap();
        let hub = EventHubs::builder(&connection).hub("eh1").build().unwrap();
        let processor = Processor::builder(hub.source(), SqliteStore::open(self.store()).unwrap())
            .consumer_group("cg1")
            .instance_id(name)
            .checkpoint(Checkpoint::every(1))
            .on_event(move |event: Event, _: Context| {
                let handle = handle.clone();
                async move { handle(&event) }
            })
            .build()
            .unwrap();
        self.runtime.block_on(processor.start()).map_err(|error| error.to_string())
    }

    pub(crate) fn stop(&self, running: ProcessorHandle) {
        self.runtime.block_on(running.shutdown()).unwrap();
    }

    pub(crate) fn produce(&self, args: &[&str]) {
        let output = self.at_hub(&[&["produce", "eh1"], args].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    fn at_hub(&self, args: &[&str]) -> Command {
        let mut command = partita(args);
        command.env("EVENTHUBS_CONNECTION_STRING", self.connection());
        command
    }

    /// A command about the group.
    pub(crate) fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.at_hub(&[name, "eh1", "-g", "cg1"]);
        command.arg("--store").arg(format!("sqlite:{}", self.store().display())).args(args);
        command
    }

    pub(crate) fn output(&self, name: &str, args: &[&str]) -> Output {
        self.command(name, args).output().unwrap()
    }

    /// What a command printed; it must succeed and say nothing else.
    pub(crate) fn says(&self, name: &str, args: &[&str]) -> String {
        let output = self.output(name, args);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn json(&self, name: &str, args: &[&str]) -> Value {
        serde_json::from_str(&self.says(name, &[args, &["-o", "json"]].concat())).unwrap()
    }

    /// Waits until the status is so.
    pub(crate) fn wait(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || {
            // Until the first processor has written, there is no group.
            let output = self.output("status", &["-o", "json"]);
            let status = serde_json::from_slice(&output.stdout).ok()?;
            condition(&status).then_some(status)
        })
    }

    /// Waits until each of these owns so many partitions, and nothing is on its way.
    pub(crate) fn wait_for_owners(&self, shares: &[(&str, usize)]) -> Value {
        self.wait("owners", |status| {
            let partitions = status["partitions"].as_array().unwrap();
            let owns = |name: &str| partitions.iter().filter(|partition| partition["owner"] == name).count();
            let still = partitions.iter().all(|partition| partition["next_owner"].is_null());
            still && shares.iter().all(|(name, count)| owns(name) == *count)
        })
    }
}
