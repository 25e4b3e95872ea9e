//! Who may call the API: no web page of another site, and, where others than this machine can connect, only who has a key.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use partita_core::model::Timestamp;
use partita_hub::listener::transport::origin::is_this_machine;
use partita_hub::service::auth::{Right, Rules, Tokens};

use crate::Web;
use crate::error::ApiError;

/// Set by browsers; pages cannot.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses calls that must not be.
pub(crate) async fn guard(State(web): State<Web>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Err(reason) = check_site(headers, web.options.local) {
        web.warn_refused(reason);
        return ApiError::new(StatusCode::FORBIDDEN, "forbidden", reason).into_response();
    }
    if !web.options.local
        && let Err(reason) = check_key(headers, &web.options.rules, Timestamp::now())
    {
        web.warn_refused(&reason);
        let mut refused = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", reason).into_response();
        let basic = axum::http::HeaderValue::from_static("Basic realm=\"Partita hub\"");
        refused.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, basic);
        return refused;
    }
    next.run(request).await
}

/// A page of another site can make a browser call this port, also under a name of its own that leads to this machine.
/// Browsers say where a call comes from, and by which name.
fn check_site(headers: &HeaderMap, local: bool) -> Result<(), &'static str> {
    let header = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = header(&HOST).ok_or("the request names no host")?;
    if header(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err("a page of another site may not call the hub");
    }
    match header(&ORIGIN) {
        None => {}
        Some("") => return Err("the Origin header is empty: leave it out"),
        Some("null") => {
            return Err(
                "a page without an origin of its own (Origin: null), such as a file or a sandboxed frame, may not call \
                        the hub: serve the page over HTTP",
            );
        }
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            return Err("a page of another site may not call the hub");
        }
        Some(_) => {}
    }
    if local && !is_this_machine(host) {
        return Err("the hub is served to this machine only, as localhost or by its loopback address");
    }
    Ok(())
}

/// A rule's name and key (`Basic`), or a token signed with the key for the whole namespace; the rule must manage it.
fn check_key(headers: &HeaderMap, rules: &Rules, now: Timestamp) -> Result<(), String> {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.ok_or("give a rule's name and key, or a shared access signature")?;
    let mut tokens = Tokens::default();
    if let Some(encoded) = given.strip_prefix("Basic ") {
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (name, key) =
            decoded.as_deref().and_then(|text| text.split_once(':')).ok_or("the name and key are garbled")?;
        tokens = Tokens::standing(rules.verify_key(name, key));
    } else {
        let grant = rules.verify(given, "", now).map_err(|error| error.to_string())?;
        tokens.put(grant, now).map_err(|refusal| refusal.to_string())?;
    }
    match tokens.allow("", Right::Manage, now) {
        Ok(_) => Ok(()),
        Err(_) => Err("there is no such rule and key here that manages the namespace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use partita_hub::service::auth::{Key, Rights, Rule, RuleScope, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn pages_of_other_sites_are_refused_by_whatever_tells_them() {
        let refused = |pairs: &[(&str, &str)]| check_site(&headers(pairs), true).is_err();
        assert!(!refused(&[("host", "localhost:5300")]), "a program");
        assert!(
            !refused(&[("host", "localhost:5300"), ("origin", "http://localhost:5300")]),
            "the hub's own page"
        );
        assert!(!refused(&[("host", "127.0.0.1:5300"), ("sec-fetch-site", "none")]), "typed into a browser");
        assert!(refused(&[("host", "localhost:5300"), ("origin", "https://evil.example")]));
        assert!(refused(&[("host", "localhost:5300"), ("origin", "null")]));
        assert!(
            refused(&[("host", "localhost:5300"), ("origin", "http://localhost:3000")]),
            "another port is another site"
        );
        assert!(refused(&[("host", "localhost:5300"), ("sec-fetch-site", "cross-site")]));
        assert!(refused(&[("host", "localhost:5300"), ("sec-fetch-site", "same-site")]));
        assert!(
            refused(&[("host", "evil.example:5300"), ("origin", "http://evil.example:5300")]),
            "a name that leads here"
        );
        assert!(refused(&[]), "no host at all");
    }

    #[test]
    fn a_key_or_token_must_manage_the_whole_namespace() {
        let rule = |name: &str, rights, scope| Rule { name: name.into(), key: Key::new("k"), rights, scope };
        let rules = Rules::new([
            rule("root", Rights::ALL, RuleScope::Namespace),
            rule("send", Rights { send: true, ..Rights::default() }, RuleScope::Namespace),
            rule("one", Rights::ALL, RuleScope::Hub("eh1".into())),
        ]);
        let now = Timestamp(1_700_000_000_000);
        let later = Timestamp(now.0 + 1_000);
        let allowed = |given: &str| check_key(&headers(&[("authorization", given)]), &rules, now).is_ok();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert!(allowed(&basic("root:k")));
        for given in ["root:x", "send:k", "one:k", "nobody:k", "root"] {
            assert!(!allowed(&basic(given)), "{given}");
        }
        let key = Key::new("k");
        assert!(allowed(&sign("sb://localhost/", "root", &key, later)));
        assert!(!allowed(&sign("sb://localhost/", "send", &key, later)));
        assert!(!allowed(&sign("sb://localhost/eh1", "root", &key, later)), "a token for one hub");
        assert!(!allowed(&sign("sb://localhost/", "root", &Key::new("x"), later)));
        assert!(!allowed(&sign("sb://localhost/", "root", &key, now)), "its time is over");
        assert!(!allowed("Bearer k"));
        assert!(check_key(&HeaderMap::new(), &rules, now).is_err());
        let known = sign("sb://hub.example/", WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), later);
        assert!(!allowed(&known));
        assert!(check_key(&headers(&[("authorization", &known)]), &Rules::default(), now).is_ok());
    }
}
