//! Signatures, rules and grants.

use partita_core::model::Timestamp;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const LATER: Timestamp = Timestamp(1_700_000_600_000);

fn rule(name: &str, key: &str, rights: Rights, scope: RuleScope) -> Rule {
    Rule { name: name.into(), key: Key::new(key), rights, scope }
}

fn well_known(resource: &str, expires: Timestamp) -> String {
    sign(resource, WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), expires)
}

fn check(token: &str, audience: &str) -> Result<Grant, TokenError> {
    Rules::default().verify(token, audience, NOW)
}

/// Made with Python's hmac, urllib and base64: the escaping of Python's client, and the lower-case one of Go's and Rust's.
#[test]
fn signatures_of_other_programs_verify_over_the_text_as_it_came() {
    for token in VECTORS {
        check(token, "sb://localhost/eh1").unwrap_or_else(|error| panic!("{token}: {error}"));
        let other = token.replace("eh1", "eh2");
        assert_eq!(check(&other, "sb://localhost/eh2"), Err(TokenError::BadSignature));
    }
}

const VECTORS: [&str; 3] = [
    "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Feh1&sig=nwq1hBhMuW1%2FBegFBNQHxCE2TbzH5aolHR42QavxIYs%3D&se=1700000600&skn=RootManageSharedAccessKey",
    "SharedAccessSignature sr=sb%3a%2f%2flocalhost%2feh1&sig=R%2FI8Ltk7rUh5MNe6V22VbtRJZisY7smuZlCsBrJq4yM%3D&se=1700000600&skn=RootManageSharedAccessKey",
    "SharedAccessSignature skn=RootManageSharedAccessKey&se=1700000600&sig=fFs8tAv39XnmgR9cafANl8lc100CGeWNlzBbA%2Bk6taI%3D&sr=amqps%3A%2F%2FLocalHost%3A5671%2Feh1",
];

#[test]
fn a_token_holds_where_it_was_signed_for_and_below() {
    let hub = well_known("sb://localhost/eh1", LATER);
    for audience in [
        "sb://localhost/eh1",
        "amqps://LOCALHOST:5671/EH1/",
        "amqp://localhost/eh1/$management",
        "sb://localhost/eh1/ConsumerGroups/$Default/Partitions/0",
    ] {
        assert_eq!(check(&hub, audience).map(|grant| grant.until()), Ok(Some(LATER)), "{audience}");
    }
    for audience in ["sb://localhost/eh10", "sb://localhost/eh2", "sb://localhost", "sb://other/eh1"] {
        assert_eq!(check(&hub, audience), Err(TokenError::OtherAudience), "{audience}");
    }
    assert!(check(&well_known("sb://localhost/", LATER), "sb://localhost/eh7").is_ok());
    assert!(check(&well_known("localhost:5672/eh1", LATER), "sb://localhost/eh1").is_ok());
    assert!(check(&well_known("other/eh1", LATER), "sb://localhost/eh1").is_err());
}

#[test]
fn a_token_that_is_wrong_is_refused_with_the_reason() {
    let audience = "sb://localhost/eh1";
    let late = well_known(audience, NOW);
    let late = check(&late, audience).expect_err("over").to_string();
    assert!(late.starts_with("ExpiredToken: ") && late.contains("2023-11-14T22:13:20.000Z"), "{late}");
    let forged = sign(audience, WELL_KNOWN_NAME, &Key::new("guess"), LATER);
    assert_eq!(check(&forged, audience), Err(TokenError::BadSignature));
    let unknown = sign(audience, "nobody", &Key::new(WELL_KNOWN_KEY), LATER);
    assert_eq!(check(&unknown, audience), Err(TokenError::BadSignature));
    for text in [
        "",
        "Bearer x",
        "SharedAccessSignature sr=a&sig=b&se=c",
        "SharedAccessSignature sr=a&sig=!&se=1&skn=b",
    ] {
        assert!(matches!(check(text, audience), Err(TokenError::Malformed(_))), "{text}");
    }
    let end = well_known(audience, LATER).replace("se=1700000600", "se=1800000600");
    assert_eq!(check(&end, audience), Err(TokenError::BadSignature), "the end is signed, too");
}

#[test]
fn a_rule_of_a_hub_grants_nothing_elsewhere() {
    let listen = Rights { listen: true, ..Rights::default() };
    let rules = Rules::new([rule("reader", "secret", listen, RuleScope::Hub("EH1".into()))]);
    let token = |resource| sign(resource, "reader", &Key::new("secret"), LATER);
    assert!(rules.verify(&token("sb://h/eh1"), "sb://h/eh1", NOW).is_ok());
    for resource in ["sb://h/eh2", "sb://h/"] {
        assert_eq!(rules.verify(&token(resource), "sb://h/eh2", NOW), Err(TokenError::BadSignature));
    }
}

#[test]
fn links_need_their_right_and_lose_it_with_the_last_token() {
    let send = Rights { send: true, ..Rights::default() };
    let mut tokens = Tokens::default();
    assert!(!tokens.any(NOW));
    let path = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    tokens.put(Grant::new(path("eh1"), send, Some(LATER)), NOW).expect("room");
    assert_eq!(tokens.allow("EH1/Partitions/3", Right::Send, NOW), Ok(Some(LATER)));
    assert_eq!(tokens.allow_any("eh1/$management", NOW), Ok(Some(LATER)));
    let refused = tokens.allow("eh1/Partitions/3", Right::Listen, NOW).expect_err("no right");
    assert_eq!(refused.condition, "amqp:unauthorized-access");
    assert!(refused.description.contains("'Listen' claim"), "{refused}");
    assert!(tokens.allow("eh2", Right::Send, NOW).is_err());
    assert!(tokens.allow("eh1", Right::Send, LATER).is_err(), "over");
    let longer = Timestamp(LATER.0 + 1);
    tokens.put(Grant::new(path("Eh1"), send, Some(longer)), NOW).expect("room");
    assert_eq!(tokens.allow("eh1", Right::Send, LATER), Ok(Some(longer)), "renewed");
    assert_eq!(
        tokens.allow("eh1", Right::Send, longer).map_err(|e| e.condition.into_owned()),
        Err("amqp:unauthorized-access".into())
    );
}

#[test]
fn a_connection_holds_so_many_tokens_and_forgets_those_that_are_over() {
    let mut tokens = Tokens::default();
    let grant = |n: usize, until| Grant::new(vec![n.to_string()], Rights::ALL, Some(until));
    for n in 0..TOKENS_MAX {
        tokens.put(grant(n, LATER), NOW).expect("room");
    }
    assert!(tokens.put(grant(TOKENS_MAX, LATER), NOW).is_err());
    assert!(tokens.put(grant(7, LATER), NOW).is_ok(), "renewing needs no room");
    assert!(tokens.put(grant(TOKENS_MAX, Timestamp(LATER.0 + 1)), LATER).is_ok());
}

#[test]
fn a_key_is_not_shown_and_a_name_with_its_key_is_a_grant() {
    let rules = Rules::default();
    assert!(!format!("{rules:?}").contains(WELL_KNOWN_KEY));
    assert_eq!(rules.verify_key(WELL_KNOWN_NAME, WELL_KNOWN_KEY).len(), 1);
    assert!(rules.verify_key(WELL_KNOWN_NAME, "SAS_KEY_VALUF").is_empty());
    assert!(rules.verify_key("other", WELL_KNOWN_KEY).is_empty());
}

#[test]
fn without_rules_anything_is_granted() {
    assert!(Rules::open().verify("whatever", "sb://localhost/eh1", NOW).is_ok());
    assert_eq!(Tokens::all().allow("eh1", Right::Manage, NOW), Ok(None));
}

proptest! {
    #[test]
    fn any_text_is_a_grant_or_refused(token in any::<String>(), audience in any::<String>()) {
        prop_assert!(check(&token, &audience).is_err());
        let token = format!("SharedAccessSignature {token}");
        prop_assert!(check(&token, &audience).is_err());
    }

    #[test]
    fn every_changed_character_is_noticed(at in any::<usize>(), with in "[a-zA-Z0-9%&=/]") {
        let token = well_known("sb://localhost/eh1", LATER);
        let at = "SharedAccessSignature ".len() + at % (token.len() - "SharedAccessSignature ".len());
        let mut changed = token.clone();
        changed.replace_range(at..=at, &with);
        // An escape may be spelled in either case; the signature is of what it stands for.
        let same = changed.to_lowercase() == token.to_lowercase() && token[at - 2..].starts_with("%3");
        prop_assume!(changed != token && !(same && token[..at].contains("&sig=")));
        prop_assert!(check(&changed, "sb://localhost/eh1").is_err(), "{}", changed);
    }
}
