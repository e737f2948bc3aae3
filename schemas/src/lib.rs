//! The wire: what the two APIs say, and what a runner is told to do and allowed to do.
//!
//! | module | who reads it |
//! |---|---|
//! | [`runner`] | a runner and the Runner API |
//! | [`manifest`] | what to do ([`manifest::Manifest`]), who may do it now ([`manifest::Grant`]) |
//! | [`token`] | the claims of every token, and the compact signature they travel in |
//! | [`keys`] | the public keys of a server, as a list signed by one of them |
//! | [`problem`] | a refusal, RFC 9457 |
//! | [`harmless`] | people: what strangers wrote, on their terminals |
//! | [`control`] | people, services and `stead`, through the Control API |
//!
//! Readers ignore what they do not know, so that both ends may be a version apart. Absent is not null.
pub mod control;
pub mod harmless;
pub mod keys;
pub mod manifest;
pub mod moment;
pub mod problem;
pub mod runner;
pub mod token;
