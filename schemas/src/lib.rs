//! Wire types of the Control API and the Runner API, and the documents that authorize a runner.
//!
//! | module | content |
//! |---|---|
//! | [`runner`] | requests and responses of the Runner API |
//! | [`ansi`] | colors in the output of jobs |
//! | [`cluster`] | cluster of a job, in the inputs of its manifest |
//! | [`manifest`] | work of a job ([`manifest::Manifest`]), permission to execute it ([`manifest::Grant`]) |
//! | [`token`] | claims of every token, and their compact signature |
//! | [`keys`] | public keys of a server, as a signed list |
//! | [`plugin`] | messages between a runner and a plugin executable |
//! | [`problem`] | error response, RFC 9457 |
//! | [`sanitize`] | untrusted text for terminals |
//! | [`secret`] | encrypted values, and their places in a manifest |
//! | [`control`] | requests and responses of the Control API |
//! | [`moment`] | format of timestamps |
//! | [`duration`], [`point_in_time`] | durations and points in time as users type them |
//!
//! Readers ignore unknown members, so client and server may differ by one version. Only requests of
//! the Control API are strict. Writers omit a member without a value instead of writing null.

#![warn(missing_docs)]

pub mod ansi;
pub mod cluster;
pub mod control;
pub mod duration;
pub mod keys;
pub mod manifest;
pub mod moment;
pub mod plugin;
pub mod point_in_time;
pub mod preflight;
pub mod problem;
pub mod runner;
pub mod sanitize;
pub mod secret;
pub mod token;
