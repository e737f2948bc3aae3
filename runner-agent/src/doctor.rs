//! Checks what the host supports, and names the consequences and remedies: `stead-runner doctor`.
mod facts;

use std::fmt::Write as _;

use serde::Serialize;

pub use self::facts::{Facts, Rules, Setup};
use crate::isolation::WITHOUT_CREDENTIALS;

/// Assessment of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    /// A protection is missing.
    Warning,
    /// The runner refuses jobs.
    Failed,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Failed => "failed",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub status: Status,
    /// Finding, its consequence and its remedy.
    pub text: String,
}

/// Assesses a host.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let finding = |check, status, text: String| Finding { check, status, text };
    let ok = |check, text: &str| finding(check, Status::Ok, text.to_owned());
    let warn = |check, text: String| finding(check, Status::Warning, text);
    let mut found = Vec::new();
    found.push(match facts.is_root {
        false => ok("user", "the runner does not run as root"),
        true => warn(
            "user",
            "the runner runs as root: a job at the level process can do everything on this host, and a job in a sandbox reads files that only root can read, such as /etc/shadow; use a user without root".into(),
        ),
    });
    if facts.in_container {
        found.push(ok(
            "container",
            "this is a container: its runtime decides about user namespaces and /dev/net/tun",
        ));
    }
    found.push(match &facts.sandbox {
        Ok(()) => ok("sandbox", "bubblewrap creates user, pid, ipc, uts and mount namespaces"),
        Err(why) => warn(
            "sandbox",
            format!("{why}; jobs can run only at the level process; {}", sandbox_remedy(facts)),
        ),
    });
    if facts.sandbox.is_ok() && !facts.closes_namespaces {
        found.push(warn(
            "kernel",
            "bubblewrap before 0.8.0: a program in a sandbox can create user namespaces, and then reaches more of the kernel; install a later version".into(),
        ));
    }
    found.push(match (&facts.sandbox, &facts.network) {
        (Ok(()), Ok(())) => ok("network", "pasta gives each job its own network; metadata addresses are unreachable"),
        (_, Err(why)) => warn(
            "network",
            format!("{why}; the runner refuses jobs in a sandbox unless the policy has `sandbox_network = \"shared\"`, which opens the host's loopback services and metadata addresses; {}", network_remedy(facts)),
        ),
        (Err(_), Ok(())) => warn("network", "pasta works, but it is used only in a sandbox".into()),
    });
    found.push(match facts.cgroup {
        true => ok("control group", "each job gets its own control group"),
        false => warn(
            "control group",
            "no control group is writable: if agent and shim are killed together, a detached process can remain; set Delegate=yes in the service".into(),
        ),
    });
    found.push(match facts.limits {
        (true, true) => ok("limits", "the kernel limits the memory and the processes of a job"),
        (memory, _) => {
            let unlimited = match facts.limits {
                (false, true) => "memory",
                _ if memory => "processes",
                _ => "memory and processes",
            };
            warn(
                "limits",
                format!("the kernel does not limit {unlimited} of a job: the runner checks them ten times per second, and a job can exceed its limit in between; set Delegate=yes and DelegateSubgroup=runner in the service (systemd 254; before, the kernel limits jobs only with version 1 of control groups)"),
            )
        }
    });
    found.push(match facts.tmpfs {
        true => ok("tmpfs", "the runner can mount a tmpfs"),
        false => warn("tmpfs", "the runner cannot mount a tmpfs: files with values of a job are on the disk while it runs".into()),
    });
    found.extend(facts.setup.iter().flat_map(|setup| of_setup(setup, facts)));
    found
}

/// Assesses the data directory of an enrolled runner.
fn of_setup(setup: &Setup, facts: &Facts) -> Vec<Finding> {
    let mut found = match &setup.isolation {
        Err(why) => vec![Finding { check: "policy", status: Status::Failed, text: why.clone() }],
        Ok(rules) => of_rules(rules, facts),
    };
    if setup.has_seed {
        found.push(Finding {
            check: "keys",
            status: Status::Warning,
            text: "keys/install is on the disk of the data that it encrypts: encryption protects copies of the data without the key, not this disk".into(),
        });
        let (status, text) = match setup.has_recipient {
            true => (
                Status::Ok,
                "a recovery recipient has the seed of the install: keep its private key and the fingerprint of the keys outside this host",
            ),
            false => (
                Status::Warning,
                "no recovery recipient has the seed of the install: add one (`stead-runner recovery add age1…`), or back up keys/install to a place that the vendor cannot read",
            ),
        };
        found.push(Finding { check: "recovery", status, text: text.into() });
    }
    found
}

fn of_rules(rules: &Rules, facts: &Facts) -> Vec<Finding> {
    let finding = |check, status, text: String| Finding { check, status, text };
    let is_supported = facts.sandbox.is_ok() && (rules.share_network || facts.network.is_ok());
    if !rules.selects_level {
        let remedy = match is_supported {
            true => "set `isolation = \"sandbox\"` in the policy",
            false => {
                "after this host supports a sandbox, set `isolation = \"sandbox\"` in the policy"
            }
        };
        let text = format!(
            "the policy selects no level, so jobs run at the level process: they can read the keys, the journal and the states of this runner; {remedy}"
        );
        return vec![finding("policy", Status::Warning, text)];
    }
    if rules.in_sandbox.is_empty() {
        return vec![finding("policy", Status::Ok, "every job runs at the level process".into())];
    }
    let kinds = rules.in_sandbox.join(", ");
    let (status, end) = match is_supported {
        true => (Status::Ok, ""),
        false => (Status::Failed, ", so the runner refuses these jobs"),
    };
    let text = format!("jobs of these kinds need a sandbox: {kinds}{end}");
    let mut found = vec![finding("policy", status, text)];
    if is_supported && !rules.share_network {
        found.push(finding("credentials", Status::Warning, WITHOUT_CREDENTIALS.into()));
    }
    found
}

fn sandbox_remedy(facts: &Facts) -> &'static str {
    match facts.in_container {
        true => {
            "install bubblewrap in the image, and let the container create user namespaces and mount /proc"
        }
        false => {
            "install the package bubblewrap, and allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
        }
    }
}

fn network_remedy(facts: &Facts) -> &'static str {
    match facts.in_container {
        true => "install passt in the image, and give the container the device /dev/net/tun",
        false => "install the package passt, and let the user open /dev/net/tun (mode 0666)",
    }
}

/// Formats the findings for users, one check per line, and the level of jobs at the end.
pub fn text(facts: &Facts, found: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, status, text: line } in found {
        let _infallible = writeln!(text, "{:<8} {check:<14} {line}", status.as_str());
    }
    let last = match facts.sandbox {
        Ok(()) => "Jobs run at the level process unless the policy selects the level sandbox.",
        Err(_) => "Jobs run at the level process. The runner refuses jobs that need a sandbox.",
    };
    let _infallible = writeln!(text, "\n{last}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let works = Ok(());
        Facts {
            is_root: false,
            in_container: false,
            sandbox: works.clone(),
            closes_namespaces: true,
            network: works,
            cgroup: true,
            limits: (true, true),
            tmpfs: false,
            setup: None,
        }
    }

    fn setup(kinds: &[&str]) -> Option<Setup> {
        let in_sandbox = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let rules = Rules { selects_level: true, in_sandbox, share_network: false };
        Some(Setup { isolation: Ok(rules), has_seed: true, has_recipient: false })
    }

    fn check(name: &str, facts: &Facts) {
        let text = text(facts, &findings(facts));
        domain::testing::golden(&format!("cli-output/doctor-{name}.txt"), &text);
    }

    fn missing(what: &str) -> Result<(), String> {
        Err(format!("{what} is not installed"))
    }

    #[test]
    fn doctor_of_a_bare_host_matches_its_golden_file() {
        let bare = Facts {
            sandbox: missing("bubblewrap"),
            network: missing("passt"),
            cgroup: false,
            limits: (false, false),
            setup: setup(&["apply"]),
            ..facts()
        };
        check("bare-host", &bare);
    }

    /// A runner of an earlier version has no rule about the level, too.
    #[test]
    fn doctor_with_a_policy_that_selects_no_level_matches_its_golden_file() {
        let isolation = Ok(Rules::default());
        let setup = Some(Setup { isolation, has_seed: true, has_recipient: true });
        check("no-level", &Facts { setup, ..facts() });
    }

    #[test]
    fn doctor_in_a_container_matches_its_golden_file() {
        let why = "bubblewrap cannot create a sandbox: bwrap: Can't mount proc on /newroot/proc: Operation not permitted";
        let network =
            Err("pasta cannot create a network: pasta: Failed to open tun socket in namespace"
                .into());
        let (is_root, in_container) = (true, true);
        check(
            "container",
            &Facts { is_root, in_container, sandbox: Err(why.into()), network, ..facts() },
        );
    }

    #[test]
    fn doctor_as_root_matches_its_golden_file() {
        check("root", &Facts { is_root: true, tmpfs: true, setup: setup(&[]), ..facts() });
    }

    #[test]
    fn doctor_as_a_user_matches_its_golden_file() {
        check("user", &Facts { setup: setup(&["plan", "apply"]), ..facts() });
    }

    #[test]
    fn doctor_fails_if_a_policy_requires_what_the_host_lacks() {
        let status = |facts: &Facts| {
            let found = findings(facts);
            found.iter().find(|finding| finding.check == "policy").unwrap().status
        };
        let without_pasta =
            Facts { network: missing("passt"), setup: setup(&["apply"]), ..facts() };
        assert_eq!(status(&without_pasta), Status::Failed);
        let mut shared = without_pasta;
        if let Some(Setup { isolation: Ok(rules), .. }) = &mut shared.setup {
            rules.share_network = true;
        }
        assert_eq!(status(&shared), Status::Ok);
    }

    #[test]
    fn doctor_names_an_old_bubblewrap() {
        let found = findings(&Facts { closes_namespaces: false, ..facts() });
        assert!(found.iter().any(|finding| finding.check == "kernel"), "{found:?}");
    }
}
