//! Required role of each route of the Control API, in one table. A route that is not listed
//! requires the owner role.
use std::fmt;

use axum::http::Method;
use domain::access::Role;

/// Role that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Any valid token.
    Viewer,
    /// Principals that read the log.
    Auditor,
    /// Principals that approve and deny plans.
    Approver,
    /// Principals that make changes.
    Owner,
}

impl Needs {
    /// Returns true if the role is sufficient.
    pub fn satisfied_by(self, role: Role) -> bool {
        match (self, role) {
            (_, Role::Owner) => true,
            (Needs::Viewer, Role::Approver | Role::Auditor | Role::Viewer) => true,
            (Needs::Auditor, Role::Auditor) | (Needs::Approver, Role::Approver) => true,
            (Needs::Auditor, Role::Approver | Role::Viewer) => false,
            (Needs::Approver, Role::Auditor | Role::Viewer) => false,
            (Needs::Owner, Role::Approver | Role::Auditor | Role::Viewer) => false,
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Needs::Viewer => "viewer",
            Needs::Auditor => "auditor",
            Needs::Approver => "approver",
            Needs::Owner => "owner",
        })
    }
}

/// Describes the permissions of a role for the CLI and the documentation.
pub fn summary(role: Role) -> &'static str {
    match role {
        Role::Owner => "Everything",
        Role::Approver => {
            "Viewer permissions; approve and deny plans of runs. No access to events of the log"
        }
        Role::Auditor => {
            "Viewer permissions; read audit (events, exports, proofs), blobs, projections and \
             subjects"
        }
        Role::Viewer => {
            "Read apps, builds, changes, installs, jobs (with their logs), runners and runs (with their plans)"
        }
    }
}

/// Method, route and required role. A test compares this table with the existing routes in
/// `schemas/routes/control.txt`.
pub const ROUTES: &[(&str, &str, Needs)] = &[
    ("GET", "/v1/whoami", Needs::Viewer),
    ("GET", "/v1/apps", Needs::Viewer),
    ("GET", "/v1/apps/{app}", Needs::Viewer),
    ("GET", "/v1/apps/{app}/versions", Needs::Viewer),
    ("GET", "/v1/apps/{app}/versions/{version}", Needs::Viewer),
    ("GET", "/v1/apps/{app}/diff", Needs::Viewer),
    ("POST", "/v1/apps/{app}/sync", Needs::Owner),
    ("GET", "/v1/builds", Needs::Viewer),
    ("GET", "/v1/builds/{build}", Needs::Viewer),
    ("POST", "/v1/builds/{build}/retry", Needs::Owner),
    ("GET", "/v1/installs", Needs::Viewer),
    ("POST", "/v1/installs", Needs::Owner),
    ("GET", "/v1/installs/{install}", Needs::Viewer),
    ("GET", "/v1/installs/{install}/state", Needs::Viewer),
    ("PATCH", "/v1/installs/{install}", Needs::Owner),
    ("POST", "/v1/installs/{install}/components/{component}/accepted-state", Needs::Owner),
    ("POST", "/v1/installs/{install}/enrolment-tokens", Needs::Owner),
    ("POST", "/v1/installs/{install}/runs", Needs::Owner),
    ("GET", "/v1/runs", Needs::Viewer),
    ("GET", "/v1/runs/{run}", Needs::Viewer),
    ("GET", "/v1/runs/{run}/steps/{step}/plan", Needs::Viewer),
    ("POST", "/v1/runs/{run}/approve", Needs::Approver),
    ("POST", "/v1/runs/{run}/deny", Needs::Approver),
    ("POST", "/v1/runs/{run}/cancel", Needs::Owner),
    ("POST", "/v1/runs/{run}/retry", Needs::Owner),
    ("GET", "/v1/jobs", Needs::Viewer),
    ("GET", "/v1/jobs/{job}", Needs::Viewer),
    ("GET", "/v1/jobs/{job}/attempts/{attempt}/log", Needs::Viewer),
    ("POST", "/v1/jobs/{job}/cancel", Needs::Owner),
    ("POST", "/v1/jobs/{job}/resolve", Needs::Owner),
    ("GET", "/v1/runners", Needs::Viewer),
    ("GET", "/v1/runners/{runner}", Needs::Viewer),
    ("GET", "/v1/runners/{runner}/journal-heads", Needs::Viewer),
    ("POST", "/v1/runners/{runner}/disable", Needs::Owner),
    ("POST", "/v1/runners/{runner}/enable", Needs::Owner),
    ("POST", "/v1/runners/{runner}/drain", Needs::Owner),
    ("POST", "/v1/runners/{runner}/resume", Needs::Owner),
    ("POST", "/v1/runners/{runner}/rekey", Needs::Owner),
    ("POST", "/v1/runners/{runner}/revoke", Needs::Owner),
    ("POST", "/v1/runners/enrolment-tokens", Needs::Owner),
    ("POST", "/v1/enrolment-tokens/{token}/revoke", Needs::Owner),
    ("GET", "/v1/audit/events", Needs::Auditor),
    ("GET", "/v1/audit/export", Needs::Auditor),
    ("GET", "/v1/audit/checkpoint", Needs::Auditor),
    ("GET", "/v1/audit/proofs", Needs::Auditor),
    ("GET", "/v1/audit/bundle", Needs::Auditor),
    ("GET", "/v1/audit/range", Needs::Auditor),
    ("GET", "/v1/audit/state", Needs::Auditor),
    ("GET", "/v1/audit/diff", Needs::Auditor),
    ("GET", "/v1/audit/diff/installs", Needs::Auditor),
    ("POST", "/v1/audit/doctor", Needs::Auditor),
    ("GET", "/v1/changes", Needs::Viewer),
    ("GET", "/v1/projections", Needs::Auditor),
    ("GET", "/v1/projections/{name}/rows", Needs::Auditor),
    ("POST", "/v1/projections/{name}/rebuild", Needs::Owner),
    ("POST", "/v1/projections/{name}/rollback", Needs::Owner),
    ("POST", "/v1/projections/{name}/verify", Needs::Auditor),
    ("DELETE", "/v1/projections/{name}/as-of/{position}", Needs::Owner),
    ("GET", "/v1/tokens", Needs::Owner),
    ("POST", "/v1/tokens", Needs::Owner),
    ("DELETE", "/v1/tokens/{token}", Needs::Owner),
    ("PUT", "/v1/principals/{principal}/roles/{role}", Needs::Owner),
    ("DELETE", "/v1/principals/{principal}/roles/{role}", Needs::Owner),
    ("PUT", "/v1/principals/{principal}/name", Needs::Owner),
    ("GET", "/v1/subjects/{subject}", Needs::Auditor),
    ("POST", "/v1/subjects/{subject}/shred", Needs::Owner),
    // A blob may be a bundle or a manifest with its full content.
    ("GET", "/v1/blobs/{digest}", Needs::Auditor),
];

/// Returns the required role of a route.
pub fn needs(method: &Method, route: &str) -> Needs {
    // axum answers HEAD with the route of GET.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    listed(method.as_str(), route).unwrap_or(Needs::Owner)
}

/// Returns the entry of a route in the table.
pub fn listed(method: &str, route: &str) -> Option<Needs> {
    let found = ROUTES.iter().find(|(verb, path, _)| *verb == method && *path == route);
    found.map(|(_, _, needs)| *needs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_route_that_nobody_listed_is_the_owners() {
        assert_eq!(needs(&Method::GET, "/v1/of-tomorrow"), Needs::Owner);
        assert_eq!(needs(&Method::HEAD, "/v1/apps"), Needs::Viewer);
        assert_eq!(needs(&Method::DELETE, "/v1/apps"), Needs::Owner);
    }

    #[test]
    fn who_approves_does_not_read_the_log_and_who_audits_does_not_approve() {
        assert!(!Needs::Auditor.satisfied_by(Role::Approver));
        assert!(!Needs::Approver.satisfied_by(Role::Auditor));
        for needs in [Needs::Viewer, Needs::Auditor, Needs::Approver, Needs::Owner] {
            assert!(needs.satisfied_by(Role::Owner));
            assert_eq!(needs.satisfied_by(Role::Viewer), needs == Needs::Viewer);
        }
    }

    /// Resources of the routes that require exactly this role, except `whoami`.
    fn nouns(of: Needs) -> Vec<&'static str> {
        let routes = ROUTES.iter().filter(|(_, _, needs)| *needs == of);
        let nouns = routes.filter_map(|(_, path, _)| path.split('/').nth(2));
        let nouns: BTreeSet<_> = nouns.filter(|noun| *noun != "whoami").collect();
        nouns.into_iter().collect()
    }

    #[test]
    fn the_summary_of_a_role_says_what_its_routes_allow() {
        let viewer = nouns(Needs::Viewer);
        assert_eq!(viewer, ["apps", "builds", "changes", "installs", "jobs", "runners", "runs"]);
        assert!(viewer.iter().all(|noun| summary(Role::Viewer).contains(noun)));
        let auditor = nouns(Needs::Auditor);
        assert_eq!(auditor, ["audit", "blobs", "projections", "subjects"]);
        assert!(auditor.iter().all(|noun| summary(Role::Auditor).contains(noun)));
        let approver: Vec<_> = ROUTES.iter().filter(|(_, _, of)| *of == Needs::Approver).collect();
        let verbs: Vec<_> =
            approver.iter().filter_map(|(_, path, _)| path.split('/').nth(4)).collect();
        assert_eq!((verbs, nouns(Needs::Approver)), (vec!["approve", "deny"], vec!["runs"]));
        assert!(summary(Role::Approver).contains("approve and deny plans of runs"));
    }
}
