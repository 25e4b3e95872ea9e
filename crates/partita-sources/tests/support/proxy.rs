//! A TCP proxy that goes wrong when told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// No limit.
const NEVER: i64 = i64::MAX / 2;

#[derive(Debug)]
struct Behaviour {
    /// How many more bytes go to clients before the connection is cut.
    cut_after: AtomicI64,
    /// Whether bytes are swallowed, with connections left open.
    silent: AtomicBool,
    connections: AtomicUsize,
}

#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    behaviour: Arc<Behaviour>,
}

impl Proxy {
    pub(crate) async fn to(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let behaviour = Arc::new(Behaviour {
            cut_after: AtomicI64::new(NEVER),
            silent: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let proxy = Self { address: listener.local_addr().expect("bound"), behaviour: behaviour.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                behaviour.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(forward(client, hub, behaviour.clone()));
            }
        });
        proxy
    }

    /// Cuts the connection that has passed so many more bytes to its client.
    pub(crate) fn cut_after(&self, bytes: i64) {
        self.behaviour.cut_after.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn silence(&self, silent: bool) {
        self.behaviour.silent.store(silent, Ordering::Relaxed);
    }

    /// How many connections came.
    pub(crate) fn connections(&self) -> usize {
        self.behaviour.connections.load(Ordering::Relaxed)
    }
}

async fn forward(client: TcpStream, hub: SocketAddr, behaviour: Arc<Behaviour>) {
    let Ok(hub) = TcpStream::connect(hub).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_hub, mut to_hub) = hub.into_split();
    let up = {
        let behaviour = behaviour.clone();
        async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                if !behaviour.silent.load(Ordering::Relaxed)
                    && to_hub.write_all(&buffer[..count]).await.is_err()
                {
                    return;
                }
            }
        }
    };
    let down = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from_hub.read(&mut buffer).await {
            if behaviour.silent.load(Ordering::Relaxed) {
                continue;
            }
            let left = behaviour.cut_after.fetch_sub(count as i64, Ordering::Relaxed);
            let pass = count.min(usize::try_from(left).unwrap_or(0));
            if to_client.write_all(&buffer[..pass]).await.is_err() {
                return;
            }
            if pass < count {
                // Once; whoever wants it again says so.
                behaviour.cut_after.store(NEVER, Ordering::Relaxed);
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
