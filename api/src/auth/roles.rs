//! Required role of each route of the Control API, in one table. A route that is not listed
//! requires the owner role.
use std::fmt;

use domain::access::Role;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredRole {
    /// Principals with any role.
    Viewer,
    /// Auditors and owners.
    Auditor,
    /// Approvers and owners.
    Approver,
    /// Approvers, auditors and owners.
    Reviewer,
    /// Owners only.
    Owner,
}

impl RequiredRole {
    /// Returns true if a principal with `role` may call the route.
    pub(crate) fn satisfied_by(self, role: Role) -> bool {
        match (self, role) {
            (_, Role::Owner) => true,
            (RequiredRole::Viewer, Role::Approver | Role::Auditor | Role::Viewer) => true,
            (RequiredRole::Auditor, Role::Auditor) | (RequiredRole::Approver, Role::Approver) => {
                true
            }
            (RequiredRole::Reviewer, Role::Approver | Role::Auditor) => true,
            (RequiredRole::Reviewer, Role::Viewer) => false,
            (RequiredRole::Auditor, Role::Approver | Role::Viewer) => false,
            (RequiredRole::Approver, Role::Auditor | Role::Viewer) => false,
            (RequiredRole::Owner, Role::Approver | Role::Auditor | Role::Viewer) => false,
        }
    }
}

impl fmt::Display for RequiredRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RequiredRole::Viewer => "viewer",
            RequiredRole::Auditor => "auditor",
            RequiredRole::Approver => "approver",
            RequiredRole::Reviewer => "approver or auditor",
            RequiredRole::Owner => "owner",
        })
    }
}

/// Method, route and required role. A test compares this table with the existing routes in
/// `schemas/routes/control.txt`.
pub(crate) const ROUTES: &[(&str, &str, RequiredRole)] = &[
    ("GET", "/v1/whoami", RequiredRole::Viewer),
    ("GET", "/v1/apps", RequiredRole::Viewer),
    ("GET", "/v1/apps/{app}", RequiredRole::Viewer),
    ("GET", "/v1/apps/{app}/versions", RequiredRole::Viewer),
    ("GET", "/v1/apps/{app}/versions/{version}", RequiredRole::Viewer),
    ("GET", "/v1/apps/{app}/diff", RequiredRole::Viewer),
    ("POST", "/v1/apps/{app}/sync", RequiredRole::Owner),
    ("GET", "/v1/builds", RequiredRole::Viewer),
    ("GET", "/v1/builds/{build}", RequiredRole::Viewer),
    ("POST", "/v1/builds/{build}/retry", RequiredRole::Owner),
    ("GET", "/v1/installs", RequiredRole::Viewer),
    ("POST", "/v1/installs", RequiredRole::Owner),
    ("GET", "/v1/installs/{install}", RequiredRole::Viewer),
    ("GET", "/v1/installs/{install}/sensitive-inputs", RequiredRole::Viewer),
    ("GET", "/v1/installs/{install}/state", RequiredRole::Viewer),
    ("PATCH", "/v1/installs/{install}", RequiredRole::Owner),
    ("POST", "/v1/installs/{install}/components/{component}/accepted-state", RequiredRole::Owner),
    ("POST", "/v1/installs/{install}/enrolment-tokens", RequiredRole::Owner),
    ("POST", "/v1/installs/{install}/runs", RequiredRole::Owner),
    ("GET", "/v1/runs", RequiredRole::Viewer),
    ("GET", "/v1/runs/{run}", RequiredRole::Viewer),
    ("GET", "/v1/runs/{run}/steps/{step}/plan", RequiredRole::Viewer),
    // Details contain values of the customer.
    ("GET", "/v1/runs/{run}/steps/{step}/plan/details", RequiredRole::Reviewer),
    ("POST", "/v1/runs/{run}/approve", RequiredRole::Approver),
    ("POST", "/v1/runs/{run}/deny", RequiredRole::Approver),
    ("POST", "/v1/runs/{run}/cancel", RequiredRole::Owner),
    ("POST", "/v1/runs/{run}/retry", RequiredRole::Owner),
    ("GET", "/v1/jobs", RequiredRole::Viewer),
    ("GET", "/v1/jobs/{job}", RequiredRole::Viewer),
    ("GET", "/v1/jobs/{job}/attempts/{attempt}/log", RequiredRole::Viewer),
    ("POST", "/v1/jobs/{job}/cancel", RequiredRole::Owner),
    ("POST", "/v1/jobs/{job}/resolve", RequiredRole::Owner),
    ("GET", "/v1/runners", RequiredRole::Viewer),
    ("GET", "/v1/runners/{runner}", RequiredRole::Viewer),
    ("GET", "/v1/runners/{runner}/journal-heads", RequiredRole::Viewer),
    ("POST", "/v1/runners/{runner}/disable", RequiredRole::Owner),
    ("POST", "/v1/runners/{runner}/enable", RequiredRole::Owner),
    ("POST", "/v1/runners/{runner}/drain", RequiredRole::Owner),
    ("POST", "/v1/runners/{runner}/resume", RequiredRole::Owner),
    ("POST", "/v1/runners/{runner}/rekey", RequiredRole::Owner),
    ("POST", "/v1/runners/{runner}/revoke", RequiredRole::Owner),
    ("POST", "/v1/runners/enrolment-tokens", RequiredRole::Owner),
    ("GET", "/v1/enrolment-tokens", RequiredRole::Owner),
    ("POST", "/v1/enrolment-tokens/{token}/revoke", RequiredRole::Owner),
    ("GET", "/v1/audit/events", RequiredRole::Auditor),
    ("GET", "/v1/audit/export", RequiredRole::Auditor),
    ("GET", "/v1/audit/checkpoint", RequiredRole::Auditor),
    ("GET", "/v1/audit/proofs", RequiredRole::Auditor),
    ("GET", "/v1/audit/bundle", RequiredRole::Auditor),
    ("GET", "/v1/audit/range", RequiredRole::Auditor),
    ("GET", "/v1/audit/state", RequiredRole::Auditor),
    ("GET", "/v1/audit/diff", RequiredRole::Auditor),
    ("GET", "/v1/audit/diff/installs", RequiredRole::Auditor),
    ("POST", "/v1/audit/doctor", RequiredRole::Auditor),
    ("GET", "/v1/changes", RequiredRole::Viewer),
    ("GET", "/v1/plugins", RequiredRole::Viewer),
    ("GET", "/v1/plugins/{plugin}", RequiredRole::Viewer),
    ("POST", "/v1/plugins/{plugin}", RequiredRole::Owner),
    ("PUT", "/v1/plugins/{plugin}/blobs/{digest}", RequiredRole::Owner),
    ("GET", "/v1/projections", RequiredRole::Auditor),
    ("GET", "/v1/projections/{name}/rows", RequiredRole::Auditor),
    ("POST", "/v1/projections/{name}/rebuild", RequiredRole::Owner),
    ("POST", "/v1/projections/{name}/rollback", RequiredRole::Owner),
    ("POST", "/v1/projections/{name}/verify", RequiredRole::Auditor),
    ("DELETE", "/v1/projections/{name}/as-of/{position}", RequiredRole::Owner),
    ("GET", "/v1/tokens", RequiredRole::Owner),
    ("POST", "/v1/tokens", RequiredRole::Owner),
    ("DELETE", "/v1/tokens/{token}", RequiredRole::Owner),
    ("PUT", "/v1/principals/{principal}/roles/{role}", RequiredRole::Owner),
    ("DELETE", "/v1/principals/{principal}/roles/{role}", RequiredRole::Owner),
    ("PUT", "/v1/principals/{principal}/name", RequiredRole::Owner),
    ("GET", "/v1/webhooks", RequiredRole::Auditor),
    ("GET", "/v1/webhooks/{webhook}", RequiredRole::Auditor),
    ("PUT", "/v1/webhooks/{webhook}", RequiredRole::Owner),
    ("DELETE", "/v1/webhooks/{webhook}", RequiredRole::Owner),
    ("POST", "/v1/webhooks/{webhook}/test", RequiredRole::Owner),
    ("GET", "/v1/webhooks/{webhook}/deliveries", RequiredRole::Auditor),
    ("POST", "/v1/webhooks/{webhook}/replay", RequiredRole::Owner),
    ("GET", "/v1/subjects/{subject}", RequiredRole::Auditor),
    ("POST", "/v1/subjects/{subject}/shred", RequiredRole::Owner),
    // A blob may be a bundle or a manifest with its full content.
    ("GET", "/v1/blobs/{digest}", RequiredRole::Auditor),
];

/// Returns the required role of a route: owner if the table does not list the route.
pub(crate) fn required_role(method: &str, route: &str) -> RequiredRole {
    // axum answers HEAD with the route of GET.
    let method = if method == "HEAD" { "GET" } else { method };
    find_route(method, route).unwrap_or(RequiredRole::Owner)
}

/// Returns the role that the table lists for a route. `None` if the route is not in the table.
pub(crate) fn find_route(method: &str, route: &str) -> Option<RequiredRole> {
    let route_entry = ROUTES.iter().find(|(verb, path, _)| *verb == method && *path == route);
    route_entry.map(|(_, _, needs)| *needs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemas::control::tokens as wire;

    use super::*;

    #[test]
    fn unlisted_route_requires_the_owner_role() {
        assert_eq!(required_role("GET", "/v1/of-tomorrow"), RequiredRole::Owner);
        assert_eq!(required_role("HEAD", "/v1/apps"), RequiredRole::Viewer);
        assert_eq!(required_role("DELETE", "/v1/apps"), RequiredRole::Owner);
    }

    #[test]
    fn approver_cannot_read_the_log_and_auditor_cannot_approve() {
        assert!(!RequiredRole::Auditor.satisfied_by(Role::Approver));
        assert!(!RequiredRole::Approver.satisfied_by(Role::Auditor));
        for needs in [
            RequiredRole::Viewer,
            RequiredRole::Auditor,
            RequiredRole::Approver,
            RequiredRole::Reviewer,
            RequiredRole::Owner,
        ] {
            assert!(needs.satisfied_by(Role::Owner));
            assert_eq!(needs.satisfied_by(Role::Viewer), needs == RequiredRole::Viewer);
        }
    }

    /// Resources of the routes that require exactly this role, except `whoami`.
    fn resources(of: RequiredRole) -> Vec<&'static str> {
        let routes = ROUTES.iter().filter(|(_, _, needs)| *needs == of);
        let nouns = routes.filter_map(|(_, path, _)| path.split('/').nth(2));
        let nouns: BTreeSet<_> = nouns.filter(|noun| *noun != "whoami").collect();
        nouns.into_iter().collect()
    }

    #[test]
    fn role_summary_matches_its_routes() {
        let viewer = resources(RequiredRole::Viewer);
        assert_eq!(
            viewer,
            ["apps", "builds", "changes", "installs", "jobs", "plugins", "runners", "runs"]
        );
        assert!(viewer.iter().all(|noun| wire::Role::Viewer.summary().contains(noun)));
        let auditor = resources(RequiredRole::Auditor);
        assert_eq!(auditor, ["audit", "blobs", "projections", "subjects", "webhooks"]);
        assert!(auditor.iter().all(|noun| wire::Role::Auditor.summary().contains(noun)));
        assert_eq!(resources(RequiredRole::Reviewer), ["runs"]);
        for role in [wire::Role::Approver, wire::Role::Auditor] {
            assert!(role.summary().contains("details of plans"), "{role:?}");
        }
        let approver: Vec<_> =
            ROUTES.iter().filter(|(_, _, of)| *of == RequiredRole::Approver).collect();
        let verbs: Vec<_> =
            approver.iter().filter_map(|(_, path, _)| path.split('/').nth(4)).collect();
        assert_eq!(
            (verbs, resources(RequiredRole::Approver)),
            (vec!["approve", "deny"], vec!["runs"])
        );
        assert!(wire::Role::Approver.summary().contains("approve and deny plans of runs"));
    }
}
