//! Lifecycle of one app: sources from git, provision, second version, drift, teardown, second
//! install.
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tests::{Customer, Runner, Server, program, stdout_of};

use crate::{
    app::{Action, App},
    chart_repositories,
    cluster::TestCluster,
    drift,
    images::Images,
    report::Progress,
    rules::Rules,
    second_version,
    session::{Failure, Outcome, Session, short, steps},
    sources::Sources,
    web::Web,
};

/// Directories and limits of one app.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) app: PathBuf,
    pub(crate) repos: PathBuf,
    /// Directory for everything that this app writes.
    pub(crate) work: PathBuf,
    /// Installed `stead`, beside its build runner and plugins.
    pub(crate) stead: PathBuf,
    /// Directory for logs after a failure.
    pub(crate) logs: PathBuf,
    pub(crate) timeout: Duration,
    /// Keeps a copy of the server's directory.
    pub(crate) keep: bool,
}

/// Running lifecycle of an app.
pub(crate) struct Journey<'p> {
    pub(crate) place: &'p Place,
    pub(crate) rules: &'p Rules,
    pub(crate) app: App,
    pub(crate) sources: Sources,
    pub(crate) session: Session,
    pub(crate) cluster: Option<TestCluster>,
    images: Option<Images>,
}

/// Runs all steps. The progress names the current one.
pub(crate) fn travel(place: &Place, rules: &Rules, progress: &Progress) -> Outcome {
    progress.begin("sources");
    let app = read(&place.app)?;
    let sources = Sources::of(&app, &place.repos, rules);
    let cluster = if app.needs_cluster() { Some(TestCluster::find(&place.work)?) } else { None };
    progress.begin("server");
    let git = sources.configuration();
    let files = chart_repositories::files(&app, &place.repos, &place.work, rules);
    let hosts = app.remote_hosts();
    hosts.iter().for_each(|host| rules.note(format!("texts of {host}")));
    let repositories = files.keys().filter_map(|path| path.split('/').next());
    let hosts = [hosts, repositories.map(str::to_owned).collect()].concat();
    let web = (!hosts.is_empty()).then(|| Web::start(&hosts, files));
    let proxy: Vec<_> = web.iter().flat_map(Web::environment).collect();
    let vendor = helm_through(&proxy, &place.work.join("vendor"));
    let path = path(&[vendor, helm_directory()]);
    let mut environment = vec![("GIT_CONFIG_GLOBAL", git.to_str().unwrap()), ("PATH", &path)];
    environment.extend(proxy.iter().map(|(name, value)| (*name, value.as_str())));
    let images = Images::of(&app, rules)?;
    let options = images.as_ref().map(Images::server_options).unwrap_or_default();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::installed(&place.stead, &options, &environment);
    let session = Session { server, deadline: progress.deadline(place.timeout), web };
    let mut journey = Journey { place, rules, app, sources, session, cluster, images };
    let traveled = journey.all_steps(progress);
    if traveled.is_err() {
        journey.session.save(&place.logs);
    }
    if place.keep {
        let copy = place.work.join("server");
        stdout_of(Command::new("cp").arg("-a").arg(journey.session.server.dir()).arg(copy));
    }
    progress.note("clean the cluster");
    traveled
}

fn read(dir: &Path) -> Outcome<App> {
    let mut inspect = Command::new(program("stead"));
    inspect.args(["--output", "json", "apps", "inspect"]).arg(dir);
    let output = inspect.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(&text) {
        Ok(inspected) => Ok(App::read(dir, &inspected)),
        Err(_) => {
            let message = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
            Err(Failure::new(short(&message)))
        }
    }
}

impl Journey<'_> {
    fn all_steps(&mut self, progress: &Progress) -> Outcome {
        progress.begin("publish");
        self.sync(&self.app.dir, &[])?;

        progress.begin("provision");
        let runner = self.install("acme")?;

        progress.begin("actions");
        self.triggered_actions("acme")?;

        progress.begin("version 2");
        let changed = second_version::write(self)?;
        self.sync(&changed.app, &["--resolve"])?;
        let upgrade = ["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"];
        let run = self.session.run("acme", &upgrade)?;
        for name in &changed.components {
            let plan =
                steps(&run).find(|step| step["name"] == name.as_str()).map(|one| &one["plan"]);
            if plan.is_none_or(|plan| plan["noop"] != false) {
                return Err(Failure::new(format!("{name} has no changes in version 2")));
            }
        }

        progress.begin("no drift");
        self.require_no_changes()?;

        progress.begin("drift");
        if let Some(injected) = drift::inject(self, &runner)? {
            if changes(&self.deploy()?).is_empty() {
                return Err(Failure::new(format!("the drift was not found: {injected}")));
            }
            self.require_no_changes()?;
        }

        progress.begin("teardown");
        let teardown = ["installs", "teardown", "acme", "--reason", "the end"];
        let torn_down = self.session.run("acme", &teardown)?;
        progress.begin("deprovision");
        let deprovision = ["installs", "deprovision", "acme", "--reason", "the end"];
        self.session.run("acme", &deprovision)?;
        if let Some(cluster) = &self.cluster {
            progress.begin("leftovers");
            let kept = cluster.require_only(&self.printed(&torn_down))?;
            // They belong to the first install, and the second one has a cluster of its own.
            if !kept.is_empty() {
                self.rules.note("deletion of what the first install kept");
                cluster.clean();
            }
        }
        drop(runner);

        progress.begin("second install");
        let _runner = self.install("second")?;
        let deprovision = ["installs", "deprovision", "second", "--reason", "the end"];
        self.session.run("second", &deprovision)?;
        Ok(())
    }

    /// Publishes a directory, and waits for its builds.
    fn sync(&self, app: &Path, more: &[&str]) -> Outcome {
        let options = self.sources.options(self.rules);
        let mut args = vec!["apps", "sync", app.to_str().unwrap(), "--wait"];
        args.extend(more);
        args.extend(self.session.web.iter().map(|_| "--allow-remote"));
        args.extend(options.iter().map(String::as_str));
        let Err(failure) = self.session.stead(&args) else { return Ok(()) };
        let builds = self.session.stead(&["builds", "list", "--limit", "200"])?;
        let failed = builds.as_array().into_iter().flatten().filter(|one| one["state"] == "failed");
        let reasons: Vec<String> = failed
            .map(|build| {
                format!(
                    "build of {}: {}",
                    build["component_name"],
                    short(&build["detail"].to_string())
                )
            })
            .collect();
        Err(if reasons.is_empty() { failure } else { Failure(reasons) })
    }

    /// Creates an install, starts its runner, and waits until everything is up.
    fn install(&self, name: &str) -> Outcome<Runner> {
        let inputs = self.rules.inputs(&self.app);
        let mut args = vec!["installs".to_owned(), "create".into(), self.app.name.clone()];
        args.extend([name.into(), "--auto-approve".into()]);
        for (input, value) in inputs {
            args.extend(["--input".into(), format!("{input}={value}")]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let created = self.session.stead(&args)?;
        if let Some(cluster) = &self.cluster {
            cluster.prepare(self, name)?;
        }
        let token = created["enrolment"]["token"].as_str().unwrap();
        let runner = self.customer(name, &created).start(&self.session.server, token);
        let sensitive = self.rules.sensitive_inputs(&self.app);
        if !sensitive.is_empty() {
            self.pin(name, &runner)?;
        }
        self.set_secrets(name, &runner)?;
        let (required, optional): (Vec<_>, Vec<_>) =
            sensitive.into_iter().partition(|(_, _, is_required)| *is_required);
        // The first provision waits for the required ones.
        self.set_sensitive(name, &required)?;
        let run = self.session.ended(name, None)?;
        self.complete(name, run)?;
        if let Some(run) = self.set_sensitive(name, &optional)? {
            self.session.require_success(run)?;
        }
        Ok(runner)
    }

    /// Pins the keys of an install, as the vendor does with the fingerprint of the customer.
    fn pin(&self, name: &str, runner: &Runner) -> Outcome {
        self.session.wait("the keys of the install", || {
            let shown = self.session.stead(&["installs", "show", name]).ok()?;
            shown["keys"].is_object().then_some(())
        })?;
        let fingerprint = stdout_of(&mut runner.local(&["fingerprint"]));
        self.session.stead(&["installs", "pin", name, fingerprint.trim()]).map(drop)
    }

    /// Sets the secrets of the app on the runner's host, as the customer does.
    fn set_secrets(&self, name: &str, runner: &Runner) -> Outcome {
        for secret in &self.app.secrets {
            let file = self.place.work.join(format!("{name}-{secret}"));
            fs::write(&file, format!("value of {secret}")).unwrap();
            let set = ["secret", "set", secret, "--file", file.to_str().unwrap()];
            self.session.wait("the keys of the install", || {
                runner
                    .local(&set)
                    .output()
                    .is_ok_and(|output| output.status.success())
                    .then_some(())
            })?;
        }
        Ok(())
    }

    /// Sets sensitive inputs, which the command encrypts. Returns the run that it started, if it is
    /// not the first one.
    fn set_sensitive(
        &self,
        name: &str,
        inputs: &[(String, String, bool)],
    ) -> Outcome<Option<Value>> {
        if inputs.is_empty() {
            return Ok(None);
        }
        let mut args = vec!["installs".to_owned(), "set-inputs".into(), name.into()];
        for (input, value, _) in inputs {
            let file = self.place.work.join(format!("{name}-{input}"));
            fs::write(&file, value).unwrap();
            args.extend(["--secret".into(), format!("{input}={}", file.display())]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let is_first = self.session.newest(name).is_none();
        let run = if is_first {
            self.session.stead(&args)?
        } else {
            self.session.finished(name, &args)?
        };
        Ok(Some(run).filter(|run| !is_first && run.get("run").is_none_or(|run| !run.is_null())))
    }

    /// Requires that the first run of an install succeeds. If a component reads the outputs of an
    /// action that has not run, runs the action and deploys again, as the error advises. If a
    /// component fails whose action has a trigger before its deploys, does the same.
    fn complete(&self, install: &str, mut run: Value) -> Outcome {
        let mut ran = BTreeSet::new();
        loop {
            let Err(Failure(reasons)) = self.session.require_success(run) else { return Ok(()) };
            let is_missing = |action: &&Action| {
                let advice = format!("; action {} has not run", action.name);
                reasons.iter().any(|reason| {
                    let component = reason.split(':').next().unwrap_or_default();
                    reason.contains(&advice) || action.precedes(component)
                })
            };
            let mut missing = self.app.actions.iter().filter(is_missing);
            // The trigger documents that the app needs the action at this time.
            let next = missing.find_map(|action| {
                let trigger = action.triggers_by_hand().into_iter().next()?;
                Some((action, trigger)).filter(|(action, _)| !ran.contains(&action.name))
            });
            let Some((action, trigger)) = next else { return Err(Failure(reasons)) };
            ran.insert(&action.name);
            self.run_action(install, action, &trigger)?;
            let deploy = ["installs", "deploy", install, "--reason", "again"];
            run = self.session.finished(install, &deploy)?;
        }
    }

    /// Runs an action whose trigger this release reads but does not fire.
    fn run_action(&self, install: &str, action: &Action, trigger: &str) -> Outcome {
        self.rules.note(format!("trigger {trigger} by hand"));
        let args = ["installs", "action", install, &action.name, "--reason", trigger];
        self.session.run(install, &args).map(drop)
    }

    /// Returns the customer: stack outputs, programs, and access to the cluster.
    fn customer(&self, name: &str, created: &Value) -> Customer {
        let mut customer = Customer::new(&self.session.server, name);
        let programs = self.place.work.join("programs");
        self.rules.programs(&self.app, &programs);
        customer = customer.env("PATH", &path(&[Some(programs), helm_directory()]));
        let outputs = self.rules.stack_outputs(&self.app);
        let file = customer.dir().join("stack.json");
        fs::write(&file, outputs.to_string()).unwrap();
        customer = customer.with(&["--stack-outputs-file", file.to_str().unwrap()]);
        for (output, value) in outputs.as_object().into_iter().flatten() {
            if let Some(value) = value.as_str() {
                customer = customer.output(&format!("{output}={value}"));
            }
        }
        let command = created["enrolment"]["command"].as_str().unwrap_or_default();
        let mut words = command.split_whitespace();
        if words.any(|word| word == "--plugin-publisher") {
            customer = customer.with(&["--plugin-publisher", words.next().unwrap_or_default()]);
        }
        if let Some(images) = &self.images {
            customer = customer.with(&images.runner_options(name).each_ref().map(String::as_str));
        }
        if let Some(cluster) = &self.cluster {
            self.rules.note("the test cluster for that of the sandbox");
            customer = customer.pass("KUBECONFIG", cluster.kubeconfig().to_str().unwrap());
        }
        customer
    }

    /// Runs the actions whose triggers this release reads but does not fire, as it advises.
    fn triggered_actions(&self, install: &str) -> Outcome {
        for action in &self.app.actions {
            let triggers = action.triggers_by_hand();
            if let Some(trigger) = triggers.first() {
                self.run_action(install, action, trigger)?;
            }
        }
        Ok(())
    }

    /// Deploys all components again, or the sandbox of an app without components.
    fn deploy(&self) -> Outcome<Value> {
        let verb = if self.app.components.is_empty() { "reprovision" } else { "deploy" };
        self.session.run("acme", &["installs", verb, "acme", "--reason", "again"])
    }

    fn require_no_changes(&self) -> Outcome {
        let found = changes(&self.deploy()?);
        match found.is_empty() {
            true => Ok(()),
            false => {
                Err(Failure::new(format!("a repeated deploy has changes: {}", found.join(", "))))
            }
        }
    }

    /// Returns the plans and the logs of a run.
    fn printed(&self, run: &Value) -> String {
        let mut show = self.session.server.stead_for_people();
        show.args(["runs", "show", run["id"].as_str().unwrap(), "--plans"]);
        let mut printed = String::from_utf8_lossy(&show.output().unwrap().stdout).into_owned();
        for job in steps(run).filter_map(|step| step["job"].as_str()) {
            printed += &self.session.log(job);
        }
        printed
    }
}

/// Returns the steps of a run whose plan has changes.
fn changes(run: &Value) -> Vec<String> {
    let changed = steps(run).filter(|step| step["plan"]["noop"] == false);
    changed.filter_map(|step| Some(step["name"].as_str()?.to_owned())).collect()
}

/// Returns the directory of the Helm that the tests prepared.
fn helm_directory() -> Option<PathBuf> {
    PathBuf::from(std::env::var_os("STEAD_TEST_HELM")?).parent().map(PathBuf::from)
}

/// Writes a `helm` for the build runner, whose jobs get no variable of its proxy. Returns its
/// directory.
fn helm_through(proxy: &[(&str, String)], dir: &Path) -> Option<PathBuf> {
    let helm = helm_directory()?.join("helm");
    let variables: Vec<String> =
        proxy.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let script =
        format!("#!/bin/sh\nexec env {} '{}' \"$@\"\n", variables.join(" "), helm.display());
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("helm"), script).unwrap();
    fs::set_permissions(dir.join("helm"), fs::Permissions::from_mode(0o755)).unwrap();
    Some(dir.to_owned())
}

/// Returns the PATH with further directories at its start.
fn path(first: &[Option<PathBuf>]) -> String {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let all = first.iter().flatten().cloned().chain(std::env::split_paths(&own));
    std::env::join_paths(all).unwrap().into_string().unwrap()
}
