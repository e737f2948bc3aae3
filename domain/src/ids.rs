//! Typed ids: a prefix for the type of the object, and a ULID.
use std::{fmt, str::FromStr};

use bincode::{
    Decode, Encode,
    de::Decoder,
    enc::Encoder,
    error::{DecodeError, EncodeError},
};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// Text that is not a valid id of the expected type.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid id {found:?}: expected `{prefix}` and an upper-case ULID")]
pub struct IdError {
    prefix: &'static str,
    found: String,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub Ulid);
        impl $name {
            /// Prefix of every id of this type.
            pub const PREFIX: &'static str = $prefix;
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> { parse($prefix, text).map($name) }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> { text.parse() }
        }
        impl Encode for $name {
            fn encode<E: Encoder>(&self, to: &mut E) -> Result<(), EncodeError> {
                self.0.to_bytes().encode(to)
            }
        }
        impl<C> Decode<C> for $name {
            fn decode<D: Decoder<Context = C>>(from: &mut D) -> Result<Self, DecodeError> {
                Ok($name(Ulid::from_bytes(Decode::decode(from)?)))
            }
        }
        bincode::impl_borrow_decode!($name);
        impl From<$name> for String {
            fn from(id: $name) -> String { id.to_string() }
        }
    )*};
}

ids! {
    /// App: a product that a vendor installs at customers.
    AppId = "app_";
    /// Component: one deployable part of an app.
    ComponentId = "cmp_";
    /// Build: one attempt to turn a component's source into an artifact.
    BuildId = "bld_";
    /// Install: one copy of an app in one customer's account.
    InstallId = "ins_";
    /// Run: one operation on an install, with a graph of steps.
    RunId = "run_";
    /// Step: one node in the graph of a run.
    StepId = "stp_";
    /// Job: one unit of work for one runner.
    JobId = "job_";
    /// Execution: one attempt at a job. The id is also the fencing token of the attempt.
    ExecutionId = "exe_";
    /// Runner: an agent in a customer's account, or a build runner of the vendor.
    RunnerId = "rnr_";
    /// Session of a runner. A newer session of the runner replaces it.
    SessionId = "ses_";
    /// Principal: a user or a service that can have API tokens.
    PrincipalId = "prn_";
    /// API token or enrolment token. The id is not secret; the token itself is.
    TokenId = "tok_";
    /// Event of the log.
    EventId = "evt_";
    /// Sensitive value of an install, which the server knows only encrypted.
    ValueId = "val_";
    /// Endpoint of a webhook, with its URL and its signing secret.
    EndpointId = "whe_";
    /// Policy. Reserved: no object has such an id yet.
    PolicyId = "pol_";
}

/// Parses an id in its canonical form. Rejects every other spelling of the ULID, for example lower
/// case.
fn parse(prefix: &'static str, text: &str) -> Result<Ulid, IdError> {
    text.strip_prefix(prefix)
        .and_then(|ulid| Ulid::from_string(ulid).ok().filter(|read| read.to_string() == ulid))
        .ok_or_else(|| IdError { prefix, found: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";

    #[test]
    fn an_id_parses_from_its_text() {
        let id: ExecutionId = TEXT.parse().unwrap();
        assert_eq!(id.to_string(), TEXT);
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("{TEXT:?}"));
        assert_eq!(serde_json::from_str::<ExecutionId>(&format!("{TEXT:?}")).unwrap(), id);
    }

    #[test]
    fn an_id_of_another_type_or_spelling_is_rejected() {
        let expected = r#"invalid id "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV": expected `rnr_` and an upper-case ULID"#;
        assert_eq!(TEXT.parse::<RunnerId>().unwrap_err().to_string(), expected);
        assert!(serde_json::from_str::<RunnerId>(&format!("{TEXT:?}")).is_err());
        let others = [
            &TEXT[4..],
            &TEXT[..29],
            &TEXT.to_lowercase(),
            "exe_",
            "exe_81ARZ3NDEKTSV4RRFFQ69G5FAV",
        ];
        for other in others {
            assert!(other.parse::<ExecutionId>().is_err(), "{other}");
        }
    }

    #[test]
    fn every_type_has_its_own_prefix() {
        let prefixes = [
            AppId::PREFIX,
            ComponentId::PREFIX,
            BuildId::PREFIX,
            InstallId::PREFIX,
            RunId::PREFIX,
            StepId::PREFIX,
            JobId::PREFIX,
            ExecutionId::PREFIX,
            RunnerId::PREFIX,
            SessionId::PREFIX,
            PrincipalId::PREFIX,
            TokenId::PREFIX,
            EventId::PREFIX,
            ValueId::PREFIX,
            EndpointId::PREFIX,
            PolicyId::PREFIX,
        ];
        let expected =
            "app_ cmp_ bld_ ins_ run_ stp_ job_ exe_ rnr_ ses_ prn_ tok_ evt_ val_ whe_ pol_";
        assert_eq!(prefixes.join(" "), expected);
    }
}
