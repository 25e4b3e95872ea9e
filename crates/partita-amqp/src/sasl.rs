//! SASL (part 5.3): who connects. Event Hubs learns that later, from a token, so a server accepts every response unless
//! it is given a check.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::performative::field::{Composite, Field, composite};
use crate::types::{DecodeError, Decoder, EncodeError, Fields, Symbol};

/// The mechanism of Azure's messaging services: identity comes from a token later.
pub const MSSBCBS: &str = "MSSBCBS";
/// User and password.
pub const PLAIN: &str = "PLAIN";
/// Nobody in particular.
pub const ANONYMOUS: &str = "ANONYMOUS";
/// Known already, for instance from TLS.
pub const EXTERNAL: &str = "EXTERNAL";

/// The values of a SASL frame may not be more than these.
const SASL_VALUES_MAX: usize = 64;

// ---- frames ---------------------------------------------------------------------------------------------------

/// Bytes that do not show in a log.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Field for Secret {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(fields.binary()?.map(Self))
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.0.write(out)
    }
}

composite! {
    /// What a server offers.
    pub Mechanisms = 0x40 {
        sasl_server_mechanisms: Vec<Symbol>,
    }
}

composite! {
    /// What a client chose.
    pub Init = 0x41 {
        mechanism: Symbol,
        initial_response: Option<Secret>,
        hostname: Option<Arc<str>>,
    }
}

composite! {
    /// A question of the server.
    pub Challenge = 0x42 {
        challenge: Secret,
    }
}

composite! {
    /// The client's answer.
    pub Response = 0x43 {
        response: Secret,
    }
}

composite! {
    /// How it ended.
    pub Outcome = 0x44 {
        /// 0 is well; the others are errors.
        code: u8,
        additional_data: Option<Secret>,
    }
}

/// The body of a SASL frame.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The variants are the standard's.
pub enum SaslFrame {
    Mechanisms(Mechanisms),
    Init(Init),
    Challenge(Challenge),
    Response(Response),
    Outcome(Outcome),
}

impl SaslFrame {
    /// Reads the body of a SASL frame.
    pub fn decode(body: &Bytes) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::within(body, body, SASL_VALUES_MAX);
        let descriptor = decoder.descriptor()?;
        let mut fields = decoder.fields()?;
        let fields = &mut fields;
        Ok(match descriptor {
            0x40 => Self::Mechanisms(Mechanisms::read_fields(fields)?),
            0x41 => Self::Init(Init::read_fields(fields)?),
            0x42 => Self::Challenge(Challenge::read_fields(fields)?),
            0x43 => Self::Response(Response::read_fields(fields)?),
            0x44 => Self::Outcome(Outcome::read_fields(fields)?),
            _ => return Err(DecodeError::Expected("SASL frame")),
        })
    }

    /// Appends it. `out` is of no use after an error.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Mechanisms(frame) => frame.encode(out),
            Self::Init(frame) => frame.encode(out),
            Self::Challenge(frame) => frame.encode(out),
            Self::Response(frame) => frame.encode(out),
            Self::Outcome(frame) => frame.encode(out),
        }
    }
}

// ---- the server's part ----------------------------------------------------------------------------------------

/// What a client says about itself with PLAIN.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

type Check = Arc<dyn Fn(Login<'_>) -> bool + Send + Sync>;

/// What a server offers and accepts.
#[derive(Clone)]
pub struct Server {
    mechanisms: Vec<Symbol>,
    check: Option<Check>,
    required: bool,
}

impl Default for Server {
    /// Offers all mechanisms and accepts whoever comes, also without SASL.
    fn default() -> Self {
        let mechanisms = [MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL].map(Symbol::from).to_vec();
        Self { mechanisms, check: None, required: false }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mechanisms, check, required } = self;
        f.debug_struct("Server")
            .field("mechanisms", mechanisms)
            .field("checks", &check.is_some())
            .field("required", required)
            .finish()
    }
}

impl Server {
    /// Offers only these.
    pub fn mechanisms(mut self, mechanisms: impl IntoIterator<Item = &'static str>) -> Self {
        self.mechanisms = mechanisms.into_iter().map(Symbol::from).collect();
        self
    }

    /// Lets a user of PLAIN in only if `check` says so.
    pub fn check_plain(mut self, check: impl Fn(Login<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.check = Some(Arc::new(check));
        self
    }

    /// Refuses who comes without SASL.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) fn is_required(&self) -> bool {
        self.required
    }

    pub(crate) fn offer(&self) -> SaslFrame {
        SaslFrame::Mechanisms(Mechanisms { sasl_server_mechanisms: self.mechanisms.clone() })
    }

    /// The answer to the client's choice, or to its later response: an outcome, or a challenge.
    pub(crate) fn answer(&self, mechanism: &Symbol, response: Option<&Secret>) -> SaslFrame {
        let outcome = |well: bool| {
            // What the service says to everybody.
            let welcome = well.then(|| Secret(Bytes::from_static(b"Welcome!")));
            SaslFrame::Outcome(Outcome { code: if well { 0 } else { 1 }, additional_data: welcome })
        };
        if !self.mechanisms.contains(mechanism) {
            return outcome(false);
        }
        match (&self.check, response) {
            (Some(check), Some(response)) if *mechanism == PLAIN => {
                outcome(login(&response.0).is_some_and(|login| check(login)))
            }
            (Some(_), None) if *mechanism == PLAIN => {
                SaslFrame::Challenge(Challenge { challenge: Secret::default() })
            }
            _ => outcome(true),
        }
    }
}

/// Who a response of PLAIN is from: authorization, user, password, with zeros between them.
fn login(response: &[u8]) -> Option<Login<'_>> {
    let mut parts = std::str::from_utf8(response).ok()?.split('\0');
    let (Some(_), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    Some(Login { user, password })
}

// ---- the client's part ----------------------------------------------------------------------------------------

/// How a client says who it is.
#[derive(Clone)]
pub enum Client {
    /// Not at all: AMQP at once.
    None,
    /// As nobody in particular.
    Anonymous,
    /// By user and password.
    Plain {
        /// The user.
        user: Arc<str>,
        /// The password.
        password: Arc<str>,
    },
    /// It is known already.
    External,
    /// By a token, later.
    Mssbcbs,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mechanism().unwrap_or("none"))
    }
}

impl Client {
    /// By user and password.
    pub fn plain(user: impl Into<Arc<str>>, password: impl Into<Arc<str>>) -> Self {
        Self::Plain { user: user.into(), password: password.into() }
    }

    /// The mechanism's name.
    pub fn mechanism(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Anonymous => Some(ANONYMOUS),
            Self::Plain { .. } => Some(PLAIN),
            Self::External => Some(EXTERNAL),
            Self::Mssbcbs => Some(MSSBCBS),
        }
    }

    /// What the client answers to any challenge, and says at first.
    pub(crate) fn response(&self) -> Secret {
        Secret(match self {
            Self::Plain { user, password } => Bytes::from(format!("\0{user}\0{password}")),
            _ => Bytes::new(),
        })
    }

    /// The client's choice, if the server offers it.
    pub(crate) fn choose(&self, offer: &Mechanisms, hostname: Option<&Arc<str>>) -> Option<SaslFrame> {
        let mechanism = Symbol::from(self.mechanism()?);
        offer.sasl_server_mechanisms.contains(&mechanism).then(|| {
            SaslFrame::Init(Init {
                mechanism,
                initial_response: Some(self.response()),
                hostname: hostname.cloned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(frame: &SaslFrame) -> Bytes {
        let mut out = Vec::new();
        frame.encode(&mut out).unwrap();
        out.into()
    }

    #[test]
    fn frames_come_back() {
        let secret = Secret(Bytes::from_static(b"\0u\0p"));
        let init = Init {
            mechanism: PLAIN.into(),
            initial_response: Some(secret.clone()),
            hostname: Some("h".into()),
        };
        let frames = [
            Server::default().offer(),
            SaslFrame::Init(init),
            SaslFrame::Challenge(Challenge { challenge: secret.clone() }),
            SaslFrame::Response(Response { response: secret }),
            SaslFrame::Outcome(Outcome { code: 0, additional_data: None }),
        ];
        for frame in frames {
            assert_eq!(SaslFrame::decode(&encoded(&frame)).unwrap(), frame);
        }
    }

    #[test]
    fn an_outcome_is_these_bytes() {
        let frame = SaslFrame::Outcome(Outcome { code: 0, additional_data: None });
        assert_eq!(&encoded(&frame)[..], [0x00, 0x53, 0x44, 0xc0, 4, 2, 0x50, 0, 0x40]);
    }

    #[test]
    fn a_check_of_plain_decides() {
        let server = Server::default().check_plain(|login| (login.user, login.password) == ("u", "p"));
        let code = |mechanism: &str, response: Option<&'static [u8]>| {
            let response = response.map(|bytes| Secret(Bytes::from_static(bytes)));
            match server.answer(&mechanism.into(), response.as_ref()) {
                SaslFrame::Outcome(outcome) => Some(outcome.code),
                SaslFrame::Challenge(_) => None,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code(PLAIN, Some(b"\0u\0p")), Some(0));
        assert_eq!(code(PLAIN, Some(b"other\0u\0p")), Some(0));
        assert_eq!(code(PLAIN, Some(b"\0u\0q")), Some(1));
        assert_eq!(code(PLAIN, Some(b"\0u\0p\0")), Some(1));
        assert_eq!(code(PLAIN, Some(b"\xff")), Some(1));
        assert_eq!(code(PLAIN, None), None);
        assert_eq!(code(ANONYMOUS, None), Some(0));
        assert_eq!(code("SCRAM-SHA-256", None), Some(1));
    }

    #[test]
    fn no_password_is_shown() {
        let client = Client::plain("user", "geheim");
        let login = Login { user: "user", password: "geheim" };
        let offer = Mechanisms { sasl_server_mechanisms: vec![PLAIN.into()] };
        let shown = format!("{client:?} {login:?} {:?}", client.choose(&offer, None));
        assert!(!shown.contains("geheim"), "{shown}");
    }

    #[test]
    fn a_client_chooses_only_what_is_offered() {
        let offer = Mechanisms { sasl_server_mechanisms: vec![PLAIN.into()] };
        assert!(Client::Anonymous.choose(&offer, None).is_none());
        assert!(Client::plain("u", "p").choose(&offer, None).is_some());
    }
}
