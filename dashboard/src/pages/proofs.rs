//! Checkpoint of the log, the state of its verification, and the download of proofs.
use maud::{Markup, html};
use schemas::control::audit::Checkpoint;

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Verification of the log by this server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verification {
    /// Position up to which this server has verified the log. None before the first verification.
    pub verified: Option<u64>,
    /// First position whose stored event differs from its hashes. None if there is none.
    pub corrupt: Option<u64>,
}

/// Content of the page of proofs.
#[derive(Debug, Clone)]
pub struct ProofsPage {
    /// Signed head of the log.
    pub checkpoint: Checkpoint,
    /// Verification by this server.
    pub verification: Verification,
    /// Object to prove, as in `stead audit prove`.
    pub of: Option<String>,
    /// Name of the file with the proof.
    pub file: String,
}

/// Page of the checkpoint and of proofs. A reader must not trust what a server says about its own log, so the page
/// names the commands that verify it elsewhere.
#[must_use]
pub fn proofs(caller: &Caller, page: &ProofsPage) -> Markup {
    let ProofsPage { checkpoint, .. } = page;
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/audit" { "Audit" } }
        (frame::title(caller, &Updates::None, "Checkpoint and proofs", &html! {}))
        div.columns {
            div.stack {
                (download(page))
                section.panel aria-label="Checkpoint" {
                    header { h2 { "Checkpoint" } a.more href="/ui/audit/checkpoint" download { "Download" span.visually-hidden { " the checkpoint" } } }
                    div.body {
                        p { "Signed head of the log with " (components::count(checkpoint.size, "event")) "." }
                        pre.json tabindex="0" { (checkpoint.note) }
                        dl.facts.wide {
                            div { dt { "Verifier key" } dd { code { (checkpoint.verifier_key) } } }
                            @for key in &checkpoint.former_verifier_keys { div { dt { "Former key" } dd { code { (key) } } } }
                        }
                    }
                }
            }
            div.stack {
                section.panel aria-label="Verification" {
                    header { h2 { "Verification" } }
                    div.body {
                        (verified(&page.verification, checkpoint.size))
                        p.muted { "A compromised server could state anything here. Verify the log from your own computer:" }
                        (components::command(&["stead", "audit", "verify", &format!("--key={}", checkpoint.verifier_key)]))
                    }
                }
                section.panel aria-label="Witnesses" {
                    header { h2 { "Witnesses" } }
                    div.body {
                        p { "The runner of each customer is a witness: it keeps the newest checkpoint that it accepted, and rejects a log that does not continue it. On the customer's machine, " code { "stead-runner witness" } " prints that checkpoint, and " code { "stead-runner witness key" } " the key." }
                        p.muted { "A proof is as trustworthy as the source of its key. Compare the key above with the one of a witness." }
                    }
                }
            }
        }
    };
    frame::page(caller, Section::Audit, "Checkpoint and proofs", &content)
}

fn download(page: &ProofsPage) -> Markup {
    html! {
        section.panel aria-label="Proof" {
            header { h2 { "Proof" } }
            div.body {
                form.inline method="get" action="/ui/audit/proofs" {
                    label {
                        "Install, position, event, id or stream"
                        input type="search" name="of" required maxlength="200" value=[page.of.as_deref()] placeholder="acme, 1234, run_… or app/edge-api";
                    }
                    button type="submit" { "Choose" }
                }
                @if let Some(of) = &page.of {
                    p { a.button.primary href={ "/ui/audit/bundle?of=" (components::encoded(of)) } download=(page.file) { "Download the proof of " (of) } }
                    p { "The file has all events of the object with their proofs. This command verifies it without a server:" }
                    (components::command(&["stead", "audit", "check", &page.file, &format!("--key={}", page.checkpoint.verifier_key)]))
                }
            }
        }
    }
}

/// Statement about the verification of the log.
pub(super) fn verified(verification: &Verification, size: u64) -> Markup {
    html! {
        @match (verification.corrupt, verification.verified) {
            (Some(position), _) => p.note.fail { "The log is corrupt or was tampered with at position " (position) ". Stop the servers and preserve the database." },
            (None, Some(verified)) => p.note.ok { "Log verified up to event " (verified) @if size > verified { " of " (size) } "." },
            (None, None) => p.note.wait { "This server has not verified the log since its start." },
        }
    }
}
