//! Which web pages may open a WebSocket: a browser says in `Origin` which page asks.
//!
//! A browser lets any page open a WebSocket to any address, loopback included, and most hubs on loopback have the key that
//! everybody knows. So the origin decides. Clients without one are no browsers and are not asked for it here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// Schemes whose default port browsers leave out.
const DEFAULT_PORTS: [(&str, u16); 4] = [("http", 80), ("https", 443), ("ws", 80), ("wss", 443)];

/// Where a web page comes from: scheme, host and port, such as `https://app.example` or `http://localhost:3000`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    scheme: String,
    /// In lower case; an IPv6 address in brackets.
    host: String,
    /// `None`: the scheme's own.
    port: Option<u16>,
}

/// The text is no origin of a page.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("write an origin as scheme://host or scheme://host:port, such as https://app.example")]
pub struct BadOrigin;

impl FromStr for Origin {
    type Err = BadOrigin;

    /// `null` is none: every sandboxed page has it. `*` is none: name each.
    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        let (scheme, authority) = text.split_once("://").ok_or(BadOrigin)?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) || !scheme.bytes().all(is_scheme) {
            return Err(BadOrigin);
        }
        let (host, port) = host_and_port(authority).ok_or(BadOrigin)?;
        let scheme = scheme.to_ascii_lowercase();
        let port = port.filter(|port| !DEFAULT_PORTS.contains(&(scheme.as_str(), *port)));
        Ok(Self { scheme, host, port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Host and port of an authority or a `Host` header; the host in lower case. `None`: it is neither.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((ip, rest)) => {
            ip.parse::<std::net::Ipv6Addr>().ok()?;
            (&text[..ip.len() + 2], rest)
        }
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
        None if port.is_empty() => None,
        None => return None,
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let named = host.starts_with('[') || (!host.is_empty() && host.bytes().all(is_name));
    named.then(|| (host.to_ascii_lowercase(), port))
}

/// The address that a host is, if it is one and no name.
fn ip_of(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(ip) => ip.parse().ok().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

/// Whether a host in lower case is this machine, whatever a name server says.
fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || ip_of(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether a `Host` header means this machine, whatever a name server says: `localhost`, a name below it, or a loopback
/// address, with any port. A page under a name of its own that leads to this machine sends that name.
pub fn is_this_machine(host: &str) -> bool {
    host_and_port(host).is_some_and(|(host, _)| is_loopback(&host))
}

/// What the hub knows about a request, besides its origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Where the client is.
    pub(super) peer: IpAddr,
    /// Its `Host` header.
    pub(super) host: Option<&'a str>,
    /// Whether it came over TLS.
    pub(super) secure: bool,
}

/// The origins whose pages may open a WebSocket. Cheap to clone.
///
/// These may, whatever is allowed here:
/// - a page of this machine (`http://localhost:3000`) that connects over loopback;
/// - the hub's own origin, which some clients that are no browsers send: the one in the `Host` header, over TLS or by an IP
///   address. A plain name is not enough: any site can let its name lead to this hub.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    allowed: Arc<[Origin]>,
}

impl Origins {
    /// These, too.
    pub fn new(allowed: impl IntoIterator<Item = Origin>) -> Self {
        Self { allowed: allowed.into_iter().collect() }
    }

    /// Whether a page with this `Origin` may open a WebSocket, pure.
    pub(super) fn allow(&self, origin: &str, asked: Asked<'_>) -> bool {
        let Ok(origin) = origin.parse::<Origin>() else { return false };
        let is_web = matches!(origin.scheme.as_str(), "http" | "https");
        let of_loopback = is_web && is_loopback(&origin.host) && asked.peer.to_canonical().is_loopback();
        of_loopback || self.allowed.contains(&origin) || is_own(&origin, asked)
    }
}

/// Why a page with this `Origin` may not open a WebSocket, and what to do.
pub(super) fn why_refused(origin: &str) -> String {
    match origin {
        "" => "its Origin header is empty: leave the header out, or send the page's origin in it".to_owned(),
        // Every sandboxed frame and every file says so: whoever allowed it allowed them all.
        "null" => "its page has no origin of its own (Origin: null), as files and sandboxed frames have none, and cannot be \
                   allowed: serve the page over HTTP"
            .to_owned(),
        page => format!("pages of {page} may not use this hub: allow them with --allow-origin if they may"),
    }
}

/// Whether an origin is the hub itself, by a name that cannot be somebody else's.
fn is_own(origin: &Origin, asked: Asked<'_>) -> bool {
    let scheme = if asked.secure { "https" } else { "http" };
    let own = asked.host.and_then(|host| format!("{scheme}://{host}").parse::<Origin>().ok());
    own.is_some_and(|own| own == *origin && (asked.secure || ip_of(&own.host).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    fn asked(peer: IpAddr, host: &str, secure: bool) -> Asked<'_> {
        Asked { peer, host: Some(host), secure }
    }

    #[test]
    fn pages_of_this_machine_may_over_loopback_and_no_others() {
        let may = |origin: &str| Origins::default().allow(origin, asked(HERE, "localhost:5672", false));
        for origin in [
            "http://localhost",
            "http://localhost:3000",
            "https://LOCALHOST:5671",
            "http://app.localhost:8080",
            "http://127.0.0.1:5300",
            "http://[::1]:3000",
        ] {
            assert!(may(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "*",
            "https://evil.example",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://evil.example:5672",
            "http://localhost@evil.example",
            "http://localhost:3000/path",
            "http://localhost:x",
            "http://localhost:",
            "http://",
            "http://[::1",
            "http://[::1]x",
            "file://localhost",
            "file://",
            "chrome-extension://localhost",
            "http://0.0.0.0:5672",
            "http://192.0.2.1",
        ] {
            assert!(!may(origin), "{origin}");
        }
    }

    #[test]
    fn a_page_of_another_machines_loopback_is_a_stranger() {
        let may = |peer| Origins::default().allow("http://localhost:3000", asked(peer, "hub:5672", false));
        assert!(!may(ELSEWHERE));
        assert!(may("::ffff:127.0.0.1".parse().unwrap()), "loopback in other words");
    }

    #[test]
    fn allowed_origins_are_compared_as_browsers_write_them() {
        let allowed = ["https://App.Example:443", "http://10.0.0.1:8080", "chrome-extension://abc"];
        let origins = Origins::new(allowed.map(|origin| origin.parse().unwrap()));
        let may = |origin: &str| origins.allow(origin, asked(ELSEWHERE, "hub.example", true));
        assert!(may("https://app.example") && may("http://10.0.0.1:8080") && may("chrome-extension://abc"));
        for origin in ["http://app.example", "https://app.example:8443", "https://x.app.example", "null"] {
            assert!(!may(origin), "{origin}");
        }
        for text in ["null", "*", "app.example", "https://", "https://a/b", "https://a b", "://a"] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_hubs_own_origin_counts_only_by_a_name_that_nobody_can_borrow() {
        let may = |origin: &str, host: &str, secure| {
            Origins::default().allow(origin, asked(ELSEWHERE, host, secure))
        };
        assert!(may("https://hub.example:5671", "hub.example:5671", true), "the certificate says so");
        assert!(may("http://192.0.2.1:5672", "192.0.2.1:5672", false), "an address");
        assert!(!may("http://evil.example:5672", "evil.example:5672", false), "a name that leads here");
        assert!(!may("http://hub.example:5671", "hub.example:5671", true), "another scheme");
        assert!(!may("http://192.0.2.1", "192.0.2.1:5672", false), "another port");
    }

    #[test]
    fn only_names_that_cannot_lead_elsewhere_are_this_machine() {
        for host in [
            "localhost",
            "LOCALHOST:5300",
            "hub.localhost",
            "127.0.0.1",
            "127.1.2.3:80",
            "[::1]:5300",
            "[::1]",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "localhost.evil.example",
            "evil.example",
            "0.0.0.0",
            "192.0.2.1",
            "[::2]",
            "127.0.0.1.evil.example",
            "",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
