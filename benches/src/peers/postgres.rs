//! PostgreSQL, a transaction for each batch.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use tokio_postgres::{Client, NoTls};

use super::Peer;
use super::server::{Server, find, free_port, new_dir};
use crate::served::wire::{BATCH_EVENTS, EVENT_BYTES, block_on};

/// Connections, each with one transaction outstanding: commits of several are synced together.
pub(super) const CONNECTIONS: usize = 16;

pub(super) struct Postgres {
    server: Server,
    /// Where its socket is.
    dir: PathBuf,
}

impl Postgres {
    async fn connect(&self) -> Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.dir).port(self.server.port).user("postgres").dbname("postgres");
        let begun = Instant::now();
        loop {
            // It listens before it lets anybody in.
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client;
                }
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Peer for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const ADVICE: &'static str = "install postgresql, and let its user reach the build directory";
    const HUB: &'static [&'static str] = &[];

    fn start(dir: &Path) -> Option<Self> {
        let (initdb, postgres, port) = (find("initdb")?, find("postgres")?, free_port());
        let dir = new_dir(dir, "postgres");
        // It refuses to run as root, and has a user of its own then.
        let user = if rustix::process::geteuid().is_root() { Some(user("postgres")?) } else { None };
        let as_user = |mut command: Command| {
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&dir, Some(uid), Some(gid)).ok()?;
        }
        let data = dir.join("data");
        let mut init = as_user(Command::new(initdb));
        init.args(["-U", "postgres", "-A", "trust", "-D"]).arg(&data);
        if !init.status().ok()?.success() {
            return None;
        }
        let mut command = as_user(Command::new(postgres));
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(&dir);
        for setting in ["synchronous_commit=on", "fsync=on", "shared_buffers=256MB", "max_wal_size=8GB"] {
            command.args(["-c", setting]);
        }
        let postgres = Self { server: Server::start(command, port)?, dir };
        block_on(async {
            let table = "create table events (id bigint generated always as identity primary key, partition int, body bytea)";
            postgres.connect().await.batch_execute(table).await.expect("a table");
        });
        Some(postgres)
    }

    fn send(&self, time: Duration) -> f64 {
        block_on(async {
            let mut clients = Vec::new();
            for partition in 0..CONNECTIONS {
                let client = self.connect().await;
                let insert = "insert into events (partition, body) select $1, unnest($2::bytea[])";
                let insert = client.prepare(insert).await.expect("a statement");
                clients.push((partition as i32, client, insert));
            }
            let bodies = vec![vec![b'x'; EVENT_BYTES]; BATCH_EVENTS];
            let start = Instant::now();
            let produce = |(partition, client, insert): (i32, Client, tokio_postgres::Statement)| {
                let bodies = &bodies;
                async move {
                    let mut count = 0;
                    while start.elapsed() < time {
                        client.execute(&insert, &[&partition, bodies]).await.expect("committed");
                        count += BATCH_EVENTS;
                    }
                    count
                }
            };
            let counts = futures_util::future::join_all(clients.into_iter().map(produce)).await;
            counts.into_iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
        })
    }

    fn drain(&self, events: usize) -> f64 {
        block_on(async {
            let client = self.connect().await;
            let start = Instant::now();
            let all = "copy (select body from events limit LIMIT) to stdout (format binary)";
            let rows = client.copy_out(&all.replace("LIMIT", &events.to_string())).await.expect("rows");
            // Each row has its body, and a few bytes of its own.
            let (mut rows, mut bytes) = (pin!(rows), 0);
            while let Some(part) = rows.try_next().await.expect("rows") {
                bytes += part.len();
            }
            (bytes / (EVENT_BYTES + 6)) as f64 / start.elapsed().as_secs_f64()
        })
    }
}

/// The ids of a user of this machine.
fn user(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
