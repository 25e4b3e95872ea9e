//! From a plan to a hub that is served, and to its end.

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_hub::broker::{Broker, BrokerError};
use partita_hub::listener::transport::Transport;
use partita_hub::listener::transport::tls::ServerConfig;
use partita_hub::log::{OsDisk, Settings};
use partita_hub::server::{Server, ServerOptions};
use partita_web::{Web, WebOptions};
use tokio::task::JoinSet;

use super::banner::{self, Facts};
use super::connect::host_of;
use super::listen::Port;
use super::plan::{Plan, Storage, Tls};
use super::ready::{Ready, ReadyFile};
use super::tls::SelfSigned;
use super::{data, files, hubs, memory, tls};
use crate::Failure;
use crate::output::Out;
use crate::signals::Signals;

/// How long clients have to end in good order.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until a signal comes.
pub(crate) async fn serve(plan: Plan) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let mut out = if plan.quiet { Out::nowhere() } else { Out::stderr() };
    if let Some(path) = &plan.ready_file {
        ReadyFile::check(path).map_err(Failure::Usage)?;
    }
    // Ports before data: a second start by mistake finds out before it touches anything.
    let ports = Ports::bind(&plan).await.map_err(Failure::Listen)?;
    let broker = Arc::new(open(&plan, &mut out)?);
    if let Some(path) = &plan.ready_file {
        ReadyFile::clear(path).map_err(Failure::Usage)?;
    }
    hubs::make(&broker, &plan)?;
    let certificate = Certificate::of(&plan)?;

    let defaults = ServerOptions::default();
    let open_max = files::open_max();
    if let Some(open) = open_max.filter(|open| *open < files::OPEN_MIN) {
        tracing::warn!("the hub may have only {open} files open, which is few: raise the limit (ulimit -n)");
    }
    let budget = files::divide(open_max, defaults.connections_max);
    let options = ServerOptions {
        auth: plan.rules.clone(),
        connections_max: budget.connections,
        address_connections_max: budget.address_connections,
        origins: plan.origins.clone(),
        ..defaults
    };
    let server = Server::new(broker.clone(), options);
    let web = Web::new(
        server.clone(),
        WebOptions {
            rules: plan.rules.clone(),
            local: plan.listen.is_local(),
            retention: plan.retention(None),
            connections_max: budget.http,
        },
    );
    let mut signals =
        Signals::new().map_err(|error| Failure::Run(format!("cannot listen for signals: {error}")))?;
    let numbers = ports.numbers();
    let mut tasks = ports.serve(&server, &web, &certificate);
    let giving_back = memory::give_back(server.clone());
    tasks.spawn(async move {
        giving_back.await;
    });

    let ready = ready(&plan, numbers, &certificate);
    let file = plan
        .ready_file
        .clone()
        .map(|path| ReadyFile::write(path, &ready))
        .transpose()
        .map_err(Failure::Run)?;
    banner::warn(&plan)?;
    let facts = Facts {
        plan: &plan,
        numbers,
        broker: &broker,
        certificate: certificate.self_signed(),
        took: began.elapsed(),
    };
    banner::print(&facts, &mut out)?;

    signals.next().await;
    banner::stopping(&mut out)?;
    // Nobody who looks for the hub shall find it from now on.
    drop(file);
    web.stop();
    let stopping = async {
        server.shutdown(GRACE).await;
        tasks.shutdown().await;
        drop((server, web));
        close(broker).await;
    };
    if at_once(stopping, &mut signals).await { Ok(ExitCode::from(130)) } else { Ok(ExitCode::SUCCESS) }
}

/// Whether another signal came before the work was done.
async fn at_once(work: impl Future<Output = ()>, signals: &mut Signals) -> bool {
    tokio::select! {
        () = work => false,
        () = signals.next() => true,
    }
}

/// Closes all logs: what was taken is on disk then, and the next start has nothing to look for.
async fn close(broker: Arc<Broker>) {
    let closing = tokio::task::spawn_blocking(move || {
        for hub in broker.list() {
            hub.log().close();
        }
    });
    let _ = closing.await;
}

fn open(plan: &Plan, out: &mut Out) -> Result<Broker, Failure> {
    let fail = |error: BrokerError| {
        Failure::Data(match &error {
            BrokerError::Lost { hub, .. } => {
                format!("{error}, or go on without what is missing: --accept-loss {hub}")
            }
            _ => error.to_string(),
        })
    };
    match &plan.storage {
        Storage::Memory { hub_bytes_max } => Broker::in_memory(*hub_bytes_max).map_err(fail),
        Storage::Disk { dir, durability, accept_loss, reset, yes } => {
            if *reset {
                data::reset(dir, *yes, out)?;
            }
            let settings = Settings { durability: *durability, ..Settings::new(1) };
            let (broker, found) =
                Broker::open_accepting(Arc::new(OsDisk), dir, settings, accept_loss).map_err(fail)?;
            for (hub, recovery) in found {
                if recovery.is_clean() {
                    tracing::info!(%hub, "opened: {recovery}");
                } else {
                    tracing::warn!(%hub, "opened, but not all of it is readable: {recovery}");
                }
            }
            Ok(broker)
        }
    }
}

/// The certificate, if there is one.
enum Certificate {
    None,
    Given(Arc<ServerConfig>),
    SelfSigned(SelfSigned),
}

impl Certificate {
    fn of(plan: &Plan) -> Result<Self, Failure> {
        match &plan.tls {
            Tls::None => Ok(Self::None),
            Tls::Given(config) => Ok(Self::Given(config.clone())),
            Tls::SelfSigned { dir, names } => {
                let names = tls::names(plan.listen.ip(), host_name(), names);
                tls::self_signed(dir, &names).map(Self::SelfSigned).map_err(Failure::Usage)
            }
        }
    }

    fn config(&self) -> Option<&Arc<ServerConfig>> {
        match self {
            Self::None => None,
            Self::Given(config) => Some(config),
            Self::SelfSigned(made) => Some(&made.config),
        }
    }

    fn self_signed(&self) -> Option<&SelfSigned> {
        match self {
            Self::SelfSigned(made) => Some(made),
            _ => None,
        }
    }

    fn authority(&self) -> Option<&Path> {
        self.self_signed().map(|made| made.authority.as_path())
    }
}

/// What the machine is called by others.
fn host_name() -> Option<String> {
    #[cfg(unix)]
    return rustix::system::uname()
        .nodename()
        .to_str()
        .ok()
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    #[cfg(not(unix))]
    std::env::var("COMPUTERNAME").ok()
}

/// The numbers of the ports that are bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) amqp: u16,
    pub(crate) http: u16,
    pub(crate) tls: Option<u16>,
}

/// The ports of a hub, bound.
struct Ports {
    amqp: Port,
    http: Port,
    tls: Option<Port>,
}

impl Ports {
    async fn bind(plan: &Plan) -> Result<Self, String> {
        let amqp = plan.listen.bind(plan.port, "--port").await?;
        let tls = match plan.tls {
            Tls::None => None,
            _ => Some(plan.listen.bind(plan.tls_port, "--tls-port").await?),
        };
        let http = plan.listen.bind(plan.http_port, "--http-port").await?;
        Ok(Self { amqp, http, tls })
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            amqp: self.amqp.number,
            http: self.http.number,
            tls: self.tls.as_ref().map(|port| port.number),
        }
    }

    /// A task for each listener.
    fn serve(self, server: &Server, web: &Web, certificate: &Certificate) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let mut listen = |port: Port, transport: Transport| {
            for listener in port.listeners {
                let (server, transport) = (server.clone(), transport.clone());
                tasks.spawn(async move { server.listen(listener, transport).await });
            }
        };
        match certificate.config() {
            None => listen(self.amqp, Transport::Plain),
            Some(config) => {
                listen(self.amqp, Transport::PlainOrTls(config.clone()));
                if let Some(tls) = self.tls {
                    listen(tls, Transport::Tls(config.clone()));
                }
            }
        }
        for listener in self.http.listeners {
            let serving = web.clone().serve(listener);
            tasks.spawn(async move {
                serving.await;
            });
        }
        tasks
    }
}

fn ready(plan: &Plan, numbers: Numbers, certificate: &Certificate) -> Ready {
    let host = host_of(plan.listen.ip());
    Ready {
        amqp_port: numbers.amqp,
        http_port: numbers.http,
        connection_string: plan.identity.plain(&host, numbers.amqp),
        tls_port: numbers.tls,
        tls_connection_string: numbers.tls.map(|port| plan.identity.tls(&host, port)),
        tls_ca_file: certificate.authority().map(Path::to_owned),
        pid: std::process::id(),
    }
}
