//! Checks what the host supports, and names the consequences and remedies: `stead-runner doctor`.
mod facts;

use std::fmt::Write as _;

use serde::Serialize;

pub use self::facts::{Facts, Setup};

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
    /// What was found, its consequence and its remedy.
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
            "the runner runs as root: a job at the level process can do everything on this host; use a user without root".into(),
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
            format!("{why}; the runner refuses jobs unless the policy has `isolation = \"process\"`; {}", sandbox_remedy(facts)),
        ),
    });
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
                format!("the kernel does not limit {unlimited} of a job: the runner checks them ten times per second, and a job can exceed its limit in between; set Delegate=yes and DelegateSubgroup=runner in the service"),
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
    let policy = match &setup.requires_sandbox {
        Err(why) => Finding { check: "policy", status: Status::Failed, text: why.clone() },
        Ok(kinds) if kinds.is_empty() && setup.accepts_less => {
            let (status, text) = match (&facts.sandbox, &facts.network) {
                (Ok(()), Ok(())) => {
                    (Status::Ok, "jobs run in a sandbox unless the policy selects another level")
                }
                (_, _) => (
                    Status::Warning,
                    "this runner enrolled before jobs had a sandbox, so its jobs run with what the host supports; confirm that with the line `isolation = \"process\"`, or with `sandbox_network = \"shared\"` if only pasta is missing",
                ),
            };
            Finding { check: "policy", status, text: text.into() }
        }
        Ok(kinds) if kinds.is_empty() => {
            let text = "every job runs at the level process".into();
            Finding { check: "policy", status: Status::Ok, text }
        }
        Ok(kinds) => {
            let kinds = kinds.join(", ");
            let (status, end) = match facts.sandbox {
                Ok(()) => (Status::Ok, ""),
                Err(_) => (Status::Failed, ", so the runner refuses these jobs"),
            };
            let text = format!("jobs of these kinds need a sandbox: {kinds}{end}");
            Finding { check: "policy", status, text }
        }
    };
    let mut found = vec![policy];
    if setup.has_seed {
        found.push(Finding {
            check: "keys",
            status: Status::Warning,
            text: "keys/install is on the disk of the data that it encrypts: encryption protects copies of the data without the key, not this disk".into(),
        });
        found.push(Finding {
            check: "recovery",
            status: Status::Warning,
            text: "no recovery recipient has the seed of the install: back up keys/install to a place that the vendor cannot read".into(),
        });
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
    let accepts_less = facts.setup.as_ref().is_some_and(|setup| setup.accepts_less);
    let last = match facts.sandbox {
        Ok(()) => "Jobs run at the level sandbox unless the policy selects another one.",
        Err(_) if accepts_less => {
            "Jobs run at the level process unless the policy requires a sandbox."
        }
        Err(_) => "The runner refuses jobs unless the policy selects the level process.",
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
            network: works,
            cgroup: true,
            limits: (true, true),
            tmpfs: false,
            setup: None,
        }
    }

    fn setup(kinds: &[&str]) -> Option<Setup> {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        Some(Setup { requires_sandbox: Ok(kinds), has_seed: true, accepts_less: false })
    }

    fn check(name: &str, facts: &Facts) {
        let text = text(facts, &findings(facts));
        domain::testing::golden(&format!("cli-output/doctor-{name}.txt"), &text);
    }

    #[test]
    fn doctor_of_a_bare_host_matches_its_golden_file() {
        let missing = |what: &str| Err(format!("{what} is not installed"));
        let (sandbox, network) = (missing("bubblewrap"), missing("passt"));
        let bare = Facts {
            sandbox,
            network,
            cgroup: false,
            limits: (false, false),
            setup: setup(&["apply"]),
            ..facts()
        };
        check("bare-host", &bare);
    }

    #[test]
    fn doctor_of_an_older_runner_matches_its_golden_file() {
        let older = setup(&[]).map(|setup| Setup { accepts_less: true, ..setup });
        let sandbox = Err("bubblewrap is not installed".into());
        check("older-runner", &Facts { sandbox, setup: older, ..facts() });
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
}
