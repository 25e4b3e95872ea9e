//! HTTP on a listener: bounded in connections, and in the time that a request may take to arrive.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many clients are served at once; others wait.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send a request's headers, and to send another request.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(10);
/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped.
pub(crate) async fn serve(router: Router, listener: TcpListener) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropped with this future, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { unreachable!("never closed") };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                refused(&error).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIME_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "an HTTP connection ended");
            }
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn refused(error: &io::Error) {
    // The client went away before it was accepted: the next one may be there already.
    let of_one =
        [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
    if !of_one.contains(&error.kind()) {
        tracing::warn!(%error, "cannot accept an HTTP connection");
        tokio::time::sleep(PAUSE).await;
    }
}
