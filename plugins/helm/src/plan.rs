//! Plans of an install or an upgrade. Makes no change.

use std::{collections::BTreeSet, path::Path};

use futures::{StreamExt, TryStreamExt, future::ready, stream};
use schemas::plugin::{Action, AttributeDetails, Changes, ErrorCode, Operation};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Change, Decision, KNOWN_AFTER_APPLY, Removal},
    details::LIMIT,
    evaluate::{self, Subject},
    failure::{Failure, Outcome, listed},
    fields,
    inventory::Inventory,
    kinds::{Kind, Kinds},
    manifest::Desired,
    object::{ObjectRef, metadata},
    plan_file::PlannedRemoval,
    rejection::{OwnWebhooks, apply_failure},
};

use crate::{
    access::Access,
    chart::{self, StaticChart},
    current::{Current, Details},
    decide::{self, Candidate, Pruned},
    definitions::Definitions,
    details::{self, ReleasedObject},
    former_hooks::FormerHooks,
    hooks,
    objects::{self, Resolved},
    owner,
    plan_file::{PlanFile, ReleaseChange, ReleaseObject},
    render::{Rendered, Source, Verb},
    settings::{Component, ReleaseRef},
    size,
    summary::{self, release_change},
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
    let definitions = Definitions::load(cluster, &rendered.crds, &inventory).await?;
    let mut changes = Changes::default();
    summary::add_objects(&mut changes, &planned);
    for Desired { reference, object, .. } in &definitions.new {
        let created = ReleasedObject { reference, before: None, after: object, random: &[] };
        let fields = details::of_text(&created);
        summary::add(&mut changes, (Action::Create, reference), vec![], fields);
    }
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
        summary::add(&mut changes, (Action::Create, &namespace), vec![], vec![]);
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
        let context = hooks::Context {
            cluster: &manager,
            release: &release,
            former: FormerHooks::of(&details, &current)?,
            is_server_side,
            objects: objects.iter().map(|one| &one.reference).collect(),
        };
        let defined = objects.iter().filter(|one| one.reference.is_crd()).map(|one| &one.object);
        let defined = defined.chain(definitions.new.iter().map(|one| &one.object));
        let defined: Vec<Value> = defined.cloned().collect();
        let rendered_hooks = (rendered.release.hooks(), rendered.second.hooks());
        let runs = hooks::runs(cluster, rendered_hooks, verb.name(), &release, &defined).await?;
        for hook in context.plan(runs).await? {
            plan.hooks.push(hook.to_plan());
            summary::add_hook(&mut changes, hook);
        }
        let action = if is_new { Action::Create } else { Action::Update };
        let fields = details::of_release(&current, &details, &chart_name);
        summary::add(&mut changes, (action, &release), reasons, fields);
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
    changes.details = changes.details.take().map(|details| details.within(LIMIT));
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
    /// Differing fields with their values.
    pub fields: Vec<AttributeDetails>,
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
            let (reference, after, random) = (&reference, &object, &random);
            let fields =
                details::of_text(&ReleasedObject { reference, before: None, after, random });
            let (reference, random) = (reference.clone(), random.clone());
            let object =
                ReleaseObject { reference, change, object, expected: None, chosen: vec![], random };
            return Ok(Planned { object, attributes: vec![KNOWN_AFTER_APPLY.into()], fields });
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
        let (before, after) = (evaluated.live.as_ref(), evaluated.after.as_ref());
        let shown = ReleasedObject {
            reference: &reference,
            before,
            after: after.unwrap_or(&object),
            random: &random,
        };
        let fields = match after {
            Some(_) => details::of_result(&shown, &chosen),
            None => details::of_text(&shown),
        };
        let expected = after.map(fields::normalize);
        let (change, attributes) = (evaluated.decision.change, evaluated.decision.attributes);
        let object = ReleaseObject { reference, change, object, expected, chosen, random };
        Ok(Planned { object, attributes, fields })
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
