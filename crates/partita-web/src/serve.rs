//! HTTP on a listener: bounded in connections, in the time that a request may take to arrive, and in the time that its answer
//! may take to be read.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use partita_hub::listener::accept::AcceptFailures;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::guests::Guests;
use crate::patience::Patient;

/// How long a client may take to send a request's headers, and to send another request.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(10);
/// What is kept of a request before its headers are complete.
const HEADERS_BYTES_MAX: usize = 16 << 10;

/// Serves until it is dropped.
pub(crate) async fn serve(router: Router, listener: TcpListener, guests: Arc<Guests>) -> Infallible {
    let failures = AcceptFailures::default();
    // Dropped with this future, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        let socket = guests.socket().await;
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                failures.wait(&error).await;
                continue;
            }
        };
        let router = router.clone();
        guests.welcome(address.ip(), |place, busy| {
            connections.spawn(async move {
                answer(router, stream, busy).await;
                drop((place, socket));
            })
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one client until it ends, or has to.
async fn answer(router: Router, stream: TcpStream, busy: Arc<AtomicBool>) {
    let service = TowerToHyperService::new(router);
    let asked = AtomicBool::new(false);
    let service = service_fn(move |request| {
        let (answering, busy) = (service.call(request), busy.clone());
        let again = asked.swap(true, Ordering::Relaxed);
        async move {
            busy.store(true, Ordering::Release);
            // Whoever asks for much at once waits its turn for each: a health check is not behind all of it.
            if again {
                tokio::task::yield_now().await;
            }
            let answer = answering.await;
            busy.store(false, Ordering::Release);
            answer
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME_MAX)
        .max_buf_size(HEADERS_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream)), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}
