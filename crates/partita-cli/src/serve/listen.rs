//! Ports: where the hub listens, and what is said when it cannot.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted, as far as the system lets them: many clients that come back at once must not be
/// told to try again a second later.
const BACKLOG: u32 = 4_096;

/// How often a free port is looked for that is free on both loopback addresses.
const TRIES: usize = 8;

/// Which addresses of the machine are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Listen {
    /// `localhost`, by both its addresses: clients differ in which they try first.
    Loopback,
    Address(IpAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Self::Loopback);
        }
        let address = text.trim_start_matches('[').trim_end_matches(']').parse();
        address.map(Self::Address).map_err(|_| {
            "write localhost, an IP address of this machine, or 0.0.0.0 or :: for all of them".to_owned()
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("localhost"),
            Self::Address(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Address(ip) => write!(f, "{ip}"),
        }
    }
}

impl Listen {
    /// Whether only processes of this machine can connect.
    pub(crate) fn is_local(self) -> bool {
        match self {
            Self::Loopback => true,
            Self::Address(ip) => ip.is_loopback(),
        }
    }

    /// Whether a client of this machine reaches it by 127.0.0.1.
    pub(crate) fn reaches_loopback(self) -> bool {
        match self {
            Self::Loopback => true,
            Self::Address(ip) => ip == Ipv4Addr::LOCALHOST || ip.is_unspecified(),
        }
    }

    /// The address, unless it is all of `localhost`.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Loopback => None,
            Self::Address(ip) => Some(ip),
        }
    }

    /// Binds a port; 0 takes a free one. `option` is the one that chooses it, for what is said.
    pub(crate) async fn bind(self, port: u16, option: &str) -> Result<Port, String> {
        let said = |ip: IpAddr| move |error: io::Error| sentence(&error, ip, port, option);
        match self {
            Self::Address(ip) => Port::of(vec![bind(ip, port).await.map_err(said(ip))?]).map_err(said(ip)),
            Self::Loopback => {
                let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
                for last in (0..TRIES).map(|at| at + 1 == TRIES) {
                    let first = bind(v4, port).await.map_err(said(v4))?;
                    let taken = first.local_addr().map_err(said(v4))?.port();
                    match bind(v6, taken).await {
                        Ok(second) => return Port::of(vec![first, second]).map_err(said(v4)),
                        // A client that tries this address first would end up at somebody else's.
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !last => {
                            if port != 0 {
                                return Err(said(v6)(error));
                            }
                        }
                        // A machine without IPv6.
                        Err(_) => return Port::of(vec![first]).map_err(said(v4)),
                    }
                }
                unreachable!("the last try returns")
            }
        }
    }
}

async fn bind(ip: IpAddr, port: u16) -> io::Result<TcpListener> {
    let socket = if ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows it would let two hubs have one port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(ip, port))?;
    socket.listen(BACKLOG)
}

/// What went wrong, and what to do.
fn sentence(error: &io::Error, ip: IpAddr, port: u16, option: &str) -> String {
    let at = SocketAddr::new(ip, port);
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} is in use on {ip}: stop the process that has it, or choose another with {option} (0 takes a free one)"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("listening on {at} is not permitted: choose a port from 1024 on with {option}")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{ip} is no address of this machine: choose another with --listen")
        }
        _ => format!("cannot listen on {at}: {error}"),
    }
}

/// A port that is bound, on one address or more.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) listeners: Vec<TcpListener>,
}

impl Port {
    fn of(listeners: Vec<TcpListener>) -> io::Result<Self> {
        let number = match listeners.first() {
            Some(listener) => listener.local_addr()?.port(),
            None => 0,
        };
        Ok(Self { number, listeners })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let local = |text: &str| text.parse::<Listen>().map(Listen::is_local);
        assert_eq!(
            ["localhost", "127.0.0.1", "::1", "[::1]"].map(local),
            [Ok(true), Ok(true), Ok(true), Ok(true)]
        );
        assert_eq!(["0.0.0.0", "::", "192.0.2.1"].map(local), [Ok(false), Ok(false), Ok(false)]);
        assert!(local("example.org").unwrap_err().contains("write localhost"));
    }

    #[tokio::test]
    async fn a_free_port_is_the_same_on_both_loopback_addresses() {
        let port = Listen::Loopback.bind(0, "--port").await.unwrap();
        assert_ne!(port.number, 0);
        assert!(port.listeners.iter().all(|listener| listener.local_addr().unwrap().port() == port.number));
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let taken = Listen::Loopback.bind(0, "--port").await.unwrap();
        let refused = Listen::Loopback.bind(taken.number, "--http-port").await.unwrap_err();
        let start = format!("port {} is in use on 127.0.0.1: ", taken.number);
        assert!(refused.starts_with(&start) && refused.contains("--http-port"), "{refused}");
        let elsewhere = Listen::Address("192.0.2.1".parse().unwrap()).bind(0, "--port").await.unwrap_err();
        assert_eq!(elsewhere, "192.0.2.1 is no address of this machine: choose another with --listen");
    }
}
