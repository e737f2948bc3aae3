//! Plans of an install or an upgrade. Makes no change.

use std::{collections::BTreeSet, path::Path};

use futures::{StreamExt, TryStreamExt, future::ready, stream};
use schemas::plugin::{Action, Changes, ErrorCode, Operation};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Change, Decision, KNOWN_AFTER_APPLY, Removal},
    evaluate::{self, Subject},
    failure::{Failure, Outcome, listed},
    fields,
    inventory::Inventory,
    kinds::{Kind, Kinds},
    object::{ObjectRef, metadata},
    plan_file::PlannedRemoval,
    rejection::{OwnWebhooks, apply_failure},
};

use crate::{
    access::Access,
    chart::{self, StaticChart},
    current::{Current, Details},
    decide::{self, Candidate, Pruned},
    objects::{self, Resolved},
    owner,
    plan_file::{PlanFile, ReleaseChange, ReleaseObject},
    release::Hook,
    render::{Rendered, Source, Verb},
    settings::{Component, ReleaseRef},
    size,
    summary::{self, add_hook, release_change},
    values,
    version::{self, Version},
};

/// Creates the plan of an apply and writes it to `plan_file`.
pub async fn make(component: &Component, plan_file: &Path) -> Outcome<Changes> {
    let release = component.settings.release()?;
    let access = Access::open(component).await?;
    let cluster = &access.cluster;
    let newest = (&release, Version::NEWEST);
    let found = async {
        let (inventory, identity) =
            tokio::try_join!(Inventory::load(cluster, component), cluster.identity())?;
        let details = Details::of(&inventory);
        owner::check_identity(&details, &release)?;
        let current = Current::load(cluster, &release, &details).await?;
        owner::check_release(component, &access, &release, &details, &current).await?;
        let rendered = render(component, &access, newest, &current).await;
        Ok((inventory, details, identity, current, rendered))
    };
    // The first rendering has the flags of the newest version. An older version can refuse them, so
    // it renders again with its own flags.
    let (version, found) = tokio::join!(version::of(&access.helm), found);
    let (version, (inventory, details, identity, current, rendered)) = (version?, found?);
    let rendered = match version.can_adopt() {
        true => rendered?,
        false => render(component, &access, (&release, version), &current).await?,
    };
    let kinds = kinds_of(cluster, &rendered).await?;
    let releases = (&rendered.release, &rendered.second);
    let resolved = objects::resolve(&release, &kinds, releases, &rendered.crds)?;
    let new_namespaces = new_namespaces(cluster, &release, &resolved).await?;
    let is_new_namespace = new_namespaces.contains(&release.namespace);
    let verb = current.verb();
    let is_server_side = current.is_server_side(version);
    let manager = access.helm_manager(is_server_side);
    let take_ownership = component.settings.take_ownership;
    let webhooks = OwnWebhooks::of(resolved.iter().map(|one| (&one.reference, &one.object)));
    let context =
        Context { cluster: &manager, release: &release, take_ownership, webhooks: &webhooks };
    let planned = context.plan_objects(resolved, &new_namespaces).await?;
    let definitions = definitions(cluster, &rendered.crds, &inventory).await?;
    let mut changes = Changes::default();
    summary::add_objects(&mut changes, &planned);
    definitions.new.iter().for_each(|one| summary::add(&mut changes, Action::Create, one, vec![]));
    let objects: Vec<ReleaseObject> = planned.into_iter().map(|one| one.object).collect();
    let (removals, kept) = removals(cluster, (&inventory, &current), &release, &objects).await?;
    summary::add_removals(&mut changes, &removals);
    let chart_name = summary::chart_name(&rendered.release);
    let reasons = release_change(&current, &rendered, &details, &chart_name)?;
    let mut plan = PlanFile::new(
        (cluster.manager.clone(), identity, version.to_string(), inventory.mark()),
        Operation::Apply,
        release.clone(),
        current.last,
    );
    let is_new = verb == Verb::Install;
    if is_new_namespace {
        let namespace = format!("Namespace {}", release.namespace);
        summary::add(&mut changes, Action::Create, &namespace, vec![]);
    }
    if is_new || !changes.resources.is_empty() || !reasons.is_empty() {
        let adopts = objects.iter().any(|one| one.change == Change::Adopt);
        if adopts && !version.can_adopt() {
            return Err(Failure::refused(
                "cannot adopt objects with this version of helm; install Helm 3.17 or later, or \
                 Helm 4",
            ));
        }
        let content = StaticChart::pack(&rendered.release, &rendered.crds);
        size::check(&release, &content)?;
        add_hooks(&mut changes, rendered.release.hooks(), verb, &release)?;
        let action = if is_new { Action::Create } else { Action::Update };
        summary::add(&mut changes, action, &release, reasons);
        plan.change = Some(ReleaseChange {
            verb,
            revision: current.next_revision(),
            dropped: current.dropped.iter().map(|record| record.version).collect(),
            creates_namespace: is_new_namespace,
            adopts,
            chart: chart_name,
            content,
        });
    }
    changes.noop = changes.resources.is_empty();
    (plan.objects, plan.removals, plan.kept) = (objects, removals, kept);
    (plan.definitions, plan.is_server_side) = (definitions.all, is_server_side);
    plan.write(plan_file)?;
    Ok(changes)
}

/// Returns the namespaces that the apply creates: that of the release, and those of the chart.
async fn new_namespaces(
    cluster: &Cluster,
    release: &ReleaseRef,
    objects: &[Resolved],
) -> Outcome<BTreeSet<String>> {
    let of_chart = objects.iter().filter(|one| one.reference.is_namespace());
    let mut names: BTreeSet<String> = of_chart.map(|one| one.reference.name.clone()).collect();
    names.insert(release.namespace.clone());
    let found = stream::iter(names)
        .map(|name| async move { Ok((cluster.namespace(&name).await?, name)) })
        .buffered(CONCURRENCY);
    let absent = |(found, name): (Option<Value>, String)| found.is_none().then_some(name);
    found.try_filter_map(|one| ready(Ok(absent(one)))).try_collect().await
}

/// Renders the release. A pending release, and a chart whose definitions do not exist yet, can only
/// be simulated.
async fn render(
    component: &Component,
    access: &Access,
    (release, version): (&ReleaseRef, Version),
    current: &Current,
) -> Outcome<Rendered> {
    let chart = chart::locate(&component.source_dir)?;
    let values = values::write(&component.settings, access.helm.dir())?;
    let source = Source { helm: &access.helm, version, release, chart: &chart, values: &values };
    let verb = current.verb();
    let is_pending = verb == Verb::Upgrade && !current.dropped.is_empty();
    match source.render(verb, is_pending).await {
        Err(failure)
            if verb == Verb::Install
                && failure.message.contains("ensure CRDs are installed first")
                && chart::may_have_crds(&chart) =>
        {
            source.render(verb, true).await
        }
        rendered => rendered,
    }
}

async fn kinds_of(cluster: &Cluster, rendered: &Rendered) -> Outcome<Kinds> {
    let desired = objects::parse(&rendered.release.manifest)?;
    Kinds::load(cluster, desired.iter().map(|one| one.reference.api_version.as_str())).await
}

/// Common inputs of the plans of all objects.
struct Context<'c> {
    /// Cluster with the field manager of Helm.
    cluster: &'c Cluster,
    release: &'c ReleaseRef,
    take_ownership: bool,
    webhooks: &'c OwnWebhooks,
}

/// Planned object with the names of its differing fields.
pub struct Planned {
    pub object: ReleaseObject,
    pub attributes: Vec<String>,
}

impl Context<'_> {
    async fn plan_objects(
        &self,
        resolved: Vec<Resolved>,
        new_namespaces: &BTreeSet<String>,
    ) -> Outcome<Vec<Planned>> {
        let planned: Vec<Outcome<Planned>> = stream::iter(resolved)
            .map(|one| self.plan_object(one, new_namespaces))
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let (mut objects, mut errors) = (vec![], vec![]);
        for one in planned {
            match one {
                Ok(one) => objects.push(one),
                Err(failure) => errors.push(failure),
            }
        }
        if errors.is_empty() {
            return Ok(objects);
        }
        // One failed request, such as denied access, does not mean that the inputs are wrong.
        let code = errors.iter().map(|error| error.code).find(|code| *code != ErrorCode::Refused);
        let lines: Vec<String> = errors.into_iter().map(|error| error.message).collect();
        let message = listed(&format!("cannot deploy {}", self.release), &lines);
        Err(Failure { code: code.unwrap_or(ErrorCode::Refused), message })
    }

    async fn plan_object(
        &self,
        resolved: Resolved,
        new_namespaces: &BTreeSet<String>,
    ) -> Outcome<Planned> {
        let Resolved { reference, object, kind, random } = resolved;
        let namespace = reference.namespace.as_ref();
        let is_in_new = namespace.is_some_and(|namespace| new_namespaces.contains(namespace));
        let Some(kind) = kind.filter(|_| !is_in_new) else {
            let change = Change::Create;
            let object =
                ReleaseObject { reference, change, object, expected: None, chosen: vec![], random };
            return Ok(Planned { object, attributes: vec![KNOWN_AFTER_APPLY.into()] });
        };
        let rules = Rules {
            release: self.release,
            random: &random,
            take_ownership: self.take_ownership,
            webhooks: self.webhooks,
        };
        let evaluated = evaluate_object(self.cluster, (&kind, &reference, &object), &rules).await?;
        let chosen = match (&evaluated.live, &evaluated.after) {
            (None, Some(first)) => {
                let second = self.cluster.apply(&kind, &reference, &object, true).await;
                evaluate::chosen(first, &second.map_err(|error| apply_failure(&reference, error))?)
            }
            (Some(_), _) | (None, None) => vec![],
        };
        let expected = evaluated.after.as_ref().map(fields::normalize);
        let (change, attributes) = (evaluated.decision.change, evaluated.decision.attributes);
        let object = ReleaseObject { reference, change, object, expected, chosen, random };
        Ok(Planned { object, attributes })
    }
}

/// Rules of the evaluation of one object.
pub struct Rules<'r> {
    pub release: &'r ReleaseRef,
    /// Paths that change at every render.
    pub random: &'r [String],
    pub take_ownership: bool,
    /// Webhooks of the release, which may not respond before the apply.
    pub webhooks: &'r OwnWebhooks,
}

/// Evaluation of one object.
pub struct Evaluated {
    pub decision: Decision,
    pub live: Option<Value>,
    /// Object after the apply, as the dry run returned it.
    pub after: Option<Value>,
}

/// Reads an object, applies it in a dry run and decides its change.
pub async fn evaluate_object(
    cluster: &Cluster,
    (kind, reference, object): (&Kind, &ObjectRef, &Value),
    rules: &Rules<'_>,
) -> Outcome<Evaluated> {
    let Rules { release, random, take_ownership, webhooks } = *rules;
    let (entry, chosen) = (None, None);
    let subject = Subject { kind, reference, object, entry, take_ownership, webhooks, chosen };
    let (live, dry_run) = evaluate::dry_run(cluster, &subject).await?;
    let candidate = Candidate {
        object: reference,
        live: live.as_ref(),
        dry_run: &dry_run,
        release,
        random,
        take_ownership,
    };
    let decision = decide::decide(&candidate).map_err(Failure::refused)?;
    Ok(Evaluated { decision, live, after: dry_run.after() })
}

/// Definitions of `crds/`.
struct Definitions {
    all: Vec<ObjectRef>,
    /// Definitions that the cluster does not have.
    new: Vec<ObjectRef>,
}

async fn definitions(
    cluster: &Cluster,
    crds: &[String],
    inventory: &Inventory,
) -> Outcome<Definitions> {
    let text: String = crds.iter().map(|crd| format!("---\n{crd}\n")).collect();
    let mut found = Definitions { all: vec![], new: vec![] };
    let desired = objects::parse(&text)?;
    let versions = desired.iter().map(|one| one.reference.api_version.as_str());
    let kinds = Kinds::load(cluster, versions).await?;
    for one in desired {
        let live = match kinds.get(&one.reference) {
            Some(kind) => cluster.live(kind, &one.reference).await?,
            None => None,
        };
        match live {
            None => found.new.push(one.reference.clone()),
            // Helm neither updates nor deletes it. Only a definition of this component is named at
            // its teardown.
            Some(_) if inventory.entry(&one.reference).is_none() => continue,
            Some(_) => {}
        }
        found.all.push(one.reference);
    }
    Ok(found)
}

/// Decides about the objects that the new release does not have. Returns with the removals the objects
/// that the apply must mark as kept.
pub async fn removals(
    cluster: &Cluster,
    (inventory, current): (&Inventory, &Current),
    release: &ReleaseRef,
    objects: &[ReleaseObject],
) -> Outcome<(Vec<PlannedRemoval>, Vec<ObjectRef>)> {
    let is_desired = |one: &ObjectRef| objects.iter().any(|own| own.reference.is_same(one));
    let previous = owner::previous(cluster, inventory, current, release).await?;
    let obsolete: Vec<ObjectRef> =
        previous.into_iter().filter(|one| !is_desired(one) && !one.is_crd()).collect();
    let kinds = Kinds::load_recorded(cluster, obsolete.iter()).await?;
    let (mut removals, mut kept, mut errors) = (vec![], vec![], vec![]);
    for reference in obsolete {
        let live = match kinds.recorded(&reference) {
            Some(kind) => cluster.live(kind, &reference).await?,
            None => None,
        };
        let uid = live.as_ref().and_then(|live| metadata(live, "uid")).map(str::to_owned);
        let (uid, stays) = match decide::prune(&reference, live.as_ref(), release) {
            Err(error) => {
                errors.push(error);
                continue;
            }
            Ok(Pruned::Removal(Removal::Gone)) => (None, None),
            Ok(Pruned::Removal(Removal::Delete)) => (uid, None),
            Ok(Pruned::Removal(Removal::Forget(reason))) => (None, Some(reason)),
            Ok(Pruned::Keep(reason)) => {
                kept.push(reference.clone());
                (None, Some(reason))
            }
        };
        removals.push(PlannedRemoval { reference, wave: 0, uid, stays });
    }
    match errors.is_empty() {
        true => Ok((removals, kept)),
        false => Err(Failure::refused(listed("cannot upgrade the release", &errors))),
    }
}

/// Lists the hooks that the operation runs, in their order.
fn add_hooks(
    changes: &mut Changes,
    hooks: &[Hook],
    verb: Verb,
    release: &ReleaseRef,
) -> Outcome<()> {
    let events = [format!("pre-{}", verb.name()), format!("post-{}", verb.name())];
    for event in &events {
        let mut running: Vec<&Hook> =
            hooks.iter().filter(|hook| hook.events.contains(event)).collect();
        running.sort_by_key(|hook| hook.weight);
        for hook in running {
            for (reference, _) in objects::hook_objects(std::slice::from_ref(hook))? {
                add_hook(changes, &reference, event, hook, release);
            }
        }
    }
    Ok(())
}
