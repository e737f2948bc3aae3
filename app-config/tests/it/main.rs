//! Tests of the reader on whole directories, templates and the corpus.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")]

mod cases;
mod corpus_bundles;
mod corpus_facts;
mod corpus_templates;
mod differences;
mod examples;
mod findings;
mod format;
mod fuzz_directories;
mod fuzz_templates;
mod generator;
mod go_templates;
mod ignored_settings;
mod local_modules;
mod odd_directories;
mod output;
mod publishable;
mod regressions;
mod sample;
mod schemas;
mod sensitive;
mod small;
mod spans;
mod support;
mod supporting_parts;
mod warnings;
mod yaml_texts;
