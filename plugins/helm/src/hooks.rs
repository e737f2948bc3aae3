//! Hooks that an operation runs. Helm creates their objects, and changes or deletes existing objects of
//! the same names without checking their owners. So each hook is compared with the live object.

use futures::{StreamExt, stream};
use schemas::plugin::{AttributeDetails, ErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    decide::protection,
    failure::{Failure, Outcome, listed},
    fields, inventory,
    kinds::{self, Kind, Kinds},
    object::{ObjectRef, metadata},
    rejection::apply_failure,
};

use crate::{
    decide,
    details::{self, ReleasedObject},
    former_hooks::FormerHooks,
    objects,
    plan_file::PlanFile,
    release::Hook,
    settings::ReleaseRef,
};

/// Annotation of the objects of hooks.
pub const ANNOTATION: &str = "helm.sh/hook";
/// Policy of a hook that has none.
const BEFORE_CREATION: &str = "before-hook-creation";
const SUCCEEDED: &str = "hook-succeeded";

/// Effect of a hook on the object of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Create,
    /// Helm deletes the object of a former run, and creates the hook.
    Replace,
    /// Helm applies the hook to the object of a former run.
    Update,
}

/// Hook of a plan file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedHook {
    pub reference: ObjectRef,
    /// Policies by which Helm deletes the object.
    pub policies: Vec<String>,
    pub effect: Effect,
    /// UID of the object of a former run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Object of a hook that the operation runs.
pub struct Run {
    pub reference: ObjectRef,
    pub event: String,
    pub weight: i64,
    pub policies: Vec<String>,
    object: Value,
    /// `None` if the operation itself creates the kind.
    kind: Option<Kind>,
    /// Paths that change at every render.
    random: Vec<String>,
}

/// Run with its effect, and with the fields that it sets.
pub struct Planned {
    pub run: Run,
    pub effect: Effect,
    pub uid: Option<String>,
    pub fields: Vec<AttributeDetails>,
}

impl Planned {
    pub fn to_plan(&self) -> PlannedHook {
        let Run { reference, policies, .. } = &self.run;
        let (reference, policies) = (reference.clone(), policies.clone());
        PlannedHook { reference, policies, effect: self.effect, uid: self.uid.clone() }
    }
}

/// Returns the policies of a hook.
pub fn policies(hook: &Hook) -> Vec<String> {
    match hook.delete_policies.as_deref().unwrap_or_default() {
        [] => vec![BEFORE_CREATION.to_owned()],
        policies => policies.to_vec(),
    }
}

/// Returns whether Helm leaves the object of a hook that succeeded.
pub fn stays_after_success(object: &ObjectRef, policies: &[String]) -> bool {
    object.is_crd() || !policies.iter().any(|policy| policy == SUCCEEDED)
}

/// Returns the hooks that an operation such as `upgrade` runs, in their order. `hooks` has two
/// renderings. `definitions` are CustomResourceDefinitions that the operation itself creates.
///
/// # Errors
/// Names every hook whose kind does not exist.
pub async fn runs(
    cluster: &Cluster,
    hooks: (&[Hook], &[Hook]),
    verb: &str,
    release: &ReleaseRef,
    definitions: &[Value],
) -> Outcome<Vec<Run>> {
    let mut parsed = vec![];
    for event in [format!("pre-{verb}"), format!("post-{verb}")] {
        let mut running: Vec<&Hook> =
            hooks.0.iter().filter(|hook| hook.events.contains(&event)).collect();
        running.sort_by_key(|hook| hook.weight);
        for hook in running {
            let objects = objects::parse(&hook.manifest)?.into_iter();
            parsed.extend(objects.map(|object| (event.clone(), hook, object)));
        }
    }
    let second = objects::hook_objects(hooks.1)?;
    let versions = parsed.iter().map(|(_, _, one)| one.reference.api_version.as_str());
    let kinds = Kinds::load(cluster, versions).await?;
    let mut definitions = definitions.to_vec();
    let own = parsed.iter().filter(|(_, _, one)| one.reference.is_crd());
    definitions.extend(own.map(|(_, _, one)| one.object.clone()));
    let (mut runs, mut errors) = (vec![], vec![]);
    for (event, hook, mut desired) in parsed {
        let kind = kinds.get(&desired.reference).cloned();
        let defined =
            || definitions.iter().find_map(|one| kinds::defined_by(one, &desired.reference));
        let Some(is_namespaced) = kind.as_ref().map(|kind| kind.is_namespaced).or_else(defined)
        else {
            errors.push(format!("hook {}", kinds::unknown(&desired)));
            continue;
        };
        let other = second.iter().find(|(reference, _)| *reference == desired.reference);
        let random = other.map(|(_, other)| fields::differences(&desired.object, other));
        let random = random.into_iter().flatten().collect();
        objects::set_namespace(&mut desired, release, is_namespaced);
        let (reference, object) = (desired.reference, desired.object);
        let (weight, policies) = (hook.weight, policies(hook));
        runs.push(Run { reference, event, weight, policies, object, kind, random });
    }
    match errors.is_empty() {
        true => Ok(runs),
        false => Err(Failure::refused(listed("cannot run the hooks of the chart", &errors))),
    }
}

/// Common inputs of the plans of all hooks.
pub struct Context<'c> {
    /// Cluster with the field manager of Helm.
    pub cluster: &'c Cluster,
    pub release: &'c ReleaseRef,
    pub former: FormerHooks<'c>,
    /// Helm uses server-side apply.
    pub is_server_side: bool,
    /// Objects of the release that the operation deploys.
    pub objects: Vec<&'c ObjectRef>,
}

impl Context<'_> {
    /// Decides the effect of each hook from its live object.
    ///
    /// # Errors
    /// Names every hook that would change or delete an object of another owner.
    pub async fn plan(&self, runs: Vec<Run>) -> Outcome<Vec<Planned>> {
        let planned: Vec<Outcome<Planned>> =
            stream::iter(runs).map(|run| self.plan_run(run)).buffered(CONCURRENCY).collect().await;
        let (mut hooks, mut errors) = (vec![], vec![]);
        for one in planned {
            match one {
                Ok(one) => hooks.push(one),
                Err(failure) => errors.push(failure),
            }
        }
        if errors.is_empty() {
            return Ok(hooks);
        }
        let code = errors.iter().map(|error| error.code).find(|code| *code != ErrorCode::Refused);
        let mut lines: Vec<String> = errors.into_iter().map(|error| error.message).collect();
        // A hook with two events has the same reason twice.
        lines.dedup();
        let message = listed(&format!("cannot run the hooks of {}", self.release), &lines);
        Err(Failure { code: code.unwrap_or(ErrorCode::Refused), message })
    }

    async fn plan_run(&self, run: Run) -> Outcome<Planned> {
        let Run { reference, object, kind, random, policies, .. } = &run;
        if let Some(reason) = self.reason_to_refuse(reference) {
            return Err(Failure::refused(reason));
        }
        let live = match kind {
            Some(kind) => self.cluster.live(kind, reference).await?,
            None => None,
        };
        let uid = live.as_ref().and_then(|live| metadata(live, "uid")).map(str::to_owned);
        let effect = match &live {
            None => Effect::Create,
            Some(live) => {
                let is_own = self.former.have(reference, live, self.release);
                let subject = Subject { reference, policies, release: self.release, is_own };
                subject.decide(live, self.is_server_side).map_err(Failure::refused)?
            }
        };
        let mut shown = ReleasedObject { reference, before: None, after: object, random };
        let fields = match (effect, kind) {
            (Effect::Update, Some(kind)) => {
                let after = self.cluster.apply(kind, reference, object, true).await;
                let after = after.map_err(|error| apply_failure(reference, error))?;
                (shown.before, shown.after) = (live.as_ref(), &after);
                details::of_result(&shown, &[])
            }
            // A dry run is not possible: the hook can need objects of hooks before it.
            (Effect::Create | Effect::Replace | Effect::Update, _) => details::of_text(&shown),
        };
        Ok(Planned { effect, uid, fields, run })
    }

    fn reason_to_refuse(&self, reference: &ObjectRef) -> Option<String> {
        let namespace = inventory::NAMESPACE;
        let is_reserved = reference.namespace.as_deref() == Some(namespace)
            || (reference.is_namespace() && reference.name == namespace);
        if is_reserved {
            return Some(format!(
                "the hook {reference} is in the namespace {namespace}, where Stead stores its \
                 inventories; use another namespace"
            ));
        }
        let is_object = self.objects.iter().any(|one| one.is_same(reference));
        is_object.then(|| {
            format!(
                "{reference} is a hook and an object of the chart, and Helm would delete the \
                 object; rename one of the two"
            )
        })
    }
}

/// Hook whose object exists.
struct Subject<'s> {
    reference: &'s ObjectRef,
    policies: &'s [String],
    release: &'s ReleaseRef,
    /// The object is that of a former run.
    is_own: bool,
}

impl Subject<'_> {
    /// Decides the effect of the hook on the live object.
    ///
    /// # Errors
    /// Returns the reason why the hook blocks the plan.
    fn decide(&self, live: &Value, is_server_side: bool) -> Result<Effect, String> {
        let Subject { reference, policies, release, is_own } = *self;
        let refuse = |why: String, remedy: &str| {
            Err(format!(
                "the hook {reference} would change or delete an existing object: {why}; {remedy}"
            ))
        };
        if let Some(owner) = decide::other_owner(live, release) {
            return refuse(format!("it belongs to {owner}"), "rename one of the two");
        }
        // The object of a release can become a hook.
        if !decide::belongs_to(live, release) {
            if !is_hook(live) {
                return refuse(
                    format!("it has no annotation {ANNOTATION}"),
                    "rename one of the two, or delete the object",
                );
            }
            if !is_own {
                return refuse(
                    "this component did not create it".to_owned(),
                    "rename the hook, or delete the object, for example that of a former install",
                );
            }
        }
        // Helm never deletes a definition.
        let is_crd = reference.is_crd();
        if let Some(reason) = protection(reference, live).filter(|_| !is_crd) {
            return refuse(
                format!("{reason} is never deleted"),
                "make it an object of the chart instead of a hook, or delete it manually",
            );
        }
        if !is_crd && policies.iter().any(|policy| policy == BEFORE_CREATION) {
            return Ok(Effect::Replace);
        }
        match is_server_side {
            true => Ok(Effect::Update),
            false => refuse(
                "Helm does not replace it".to_owned(),
                "add before-hook-creation to its helm.sh/hook-delete-policy, or delete the object",
            ),
        }
    }
}

/// Returns whether an object is that of a hook.
pub fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"][ANNOTATION].as_str().is_some_and(|events| !events.is_empty())
}

/// Reads the object of each planned hook again.
///
/// # Errors
/// [`Failure::stale`] with the hooks that would now meet another object than in the plan.
pub async fn check(cluster: &Cluster, kinds: &Kinds, plan: &PlanFile) -> Outcome<()> {
    let reasons: Vec<Outcome<Option<String>>> = stream::iter(&plan.hooks)
        .map(|hook| async move {
            let live = match kinds.get(&hook.reference) {
                Some(kind) => cluster.live(kind, &hook.reference).await?,
                None => None,
            };
            Ok(stale_reason(hook, live.as_ref(), &plan.release, plan.is_server_side))
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let reasons = reasons.into_iter().collect::<Outcome<Vec<_>>>()?;
    let mut reasons: Vec<String> = reasons.into_iter().flatten().collect();
    reasons.dedup();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
    }
}

/// Returns why a hook would now have another effect than in the plan. An object that no longer
/// exists, such as a Job with a time to live, is no reason.
fn stale_reason(
    planned: &PlannedHook,
    live: Option<&Value>,
    release: &ReleaseRef,
    is_server_side: bool,
) -> Option<String> {
    let PlannedHook { reference, policies, effect, uid } = planned;
    let live = live?;
    if metadata(live, "uid") != uid.as_deref() {
        return Some(format!("an object with the name of the hook {reference} was created"));
    }
    let subject = Subject { reference, policies, release, is_own: true };
    match subject.decide(live, is_server_side) {
        Ok(now) => (now != *effect).then(|| format!("the hook {reference} changed since the plan")),
        Err(reason) => Some(reason),
    }
}

#[cfg(test)]
mod tests;
