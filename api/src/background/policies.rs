//! Runs the policies over the log: each fact is reacted to once.
//!
//! The consumer row moves in the commit of what a reaction caused, guarded by its position and its
//! owner, so a server that was killed, or taken for dead, cannot react a second time. Facts that
//! cause nothing move it in memory; that is written with the next reaction, or every second.
use std::time::Duration;

use domain::{
    actor::Actor,
    policy::{self, Fact, Reaction},
};
use event_log::{ConsumerMove, Meta, Stored, consumer};

use crate::{
    execute::Call,
    problem::{Code, Problem},
    state::App,
    usecases::{builds, runs, steps},
};

const CONSUMER: (&str, i32, i32) = ("policies", 1, 0);
/// How long a silent owner keeps the consumer.
const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is renewed and a position that moved in memory is written.
const RENEWAL: Duration = Duration::from_secs(1);
const PAGE: u32 = 500;

/// React for as long as the server runs.
pub async fn run(app: App, server: String) {
    loop {
        match consumer::acquire(&app.pool, app.engine.log().clock(), CONSUMER, &server, LEASE).await
        {
            Ok(Some(held)) => {
                if let Err(problem) = follow(&app, &server, held).await {
                    let detail = &problem.detail;
                    tracing::warn!(reason = %detail, "Policies stop for a moment: {detail}");
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(reason = %error, "Policies wait for the database: {error}")
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(RENEWAL) => {}
        }
    }
}

/// Where the consumer is: at the database, and in memory.
struct Place {
    held: consumer::Held,
    seen: u64,
}

async fn follow(app: &App, server: &str, held: consumer::Held) -> Result<(), Problem> {
    let mut positions = app.engine.log().positions();
    let mut place = Place { seen: held.position, held };
    let mut renewal = tokio::time::interval(RENEWAL);
    loop {
        let events = app.engine.log().read(place.seen, PAGE).await?;
        let caught_up = events.len() < PAGE as usize;
        for event in &events {
            consume(app, &mut place, event).await?;
        }
        if !caught_up {
            continue;
        }
        tokio::select! {
            () = app.stopping.cancelled() => return settle(app, server, &mut place).await,
            _ = renewal.tick() => settle(app, server, &mut place).await?,
            changed = positions.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Renew the lease, and write a position that moved in memory only.
async fn settle(app: &App, server: &str, place: &mut Place) -> Result<(), Problem> {
    if place.seen > place.held.position {
        if !consumer::advance(&app.pool, &place.held, place.seen).await? {
            return Err(Problem::internal("the policies' consumer is somebody else's"));
        }
        place.held.position = place.seen;
    }
    let clock = app.engine.log().clock();
    match consumer::acquire(&app.pool, clock, CONSUMER, server, LEASE).await? {
        Some(held) if held.owner_epoch == place.held.owner_epoch => Ok(()),
        Some(_) | None => Err(Problem::internal("the policies' consumer is somebody else's")),
    }
}

async fn consume(app: &App, place: &mut Place, event: &Stored) -> Result<(), Problem> {
    let reactions = match fact(event)? {
        Some(fact) => policy::react(&fact),
        None => vec![],
    };
    let last = reactions.len();
    for (at, (name, reaction)) in reactions.into_iter().enumerate() {
        let mut meta = Meta::new(Actor::Policy(name.into()), event_id(event));
        meta.causation_id = Some(event_id(event));
        meta.correlation_id = event.meta().ok().and_then(|meta| meta.correlation_id);
        let mut call = Call::of(meta);
        if at + 1 == last {
            call.consumers.push(ConsumerMove {
                name: CONSUMER.0.into(),
                version: CONSUMER.1,
                shard: CONSUMER.2,
                expected: place.held.position,
                owner_epoch: place.held.owner_epoch,
                to: event.position,
            });
        }
        match react(app, &call, reaction).await {
            Ok(()) if at + 1 == last => place.held.position = event.position,
            Ok(()) => {}
            // What the domain refuses is over: the fact came too late for it.
            Err(problem) if is_over(&problem) => {
                let (position, detail) = (event.position, &problem.detail);
                tracing::info!(policy = name, position, reason = %detail, "{name} was refused at {position}: {detail}");
            }
            Err(problem) => return Err(problem),
        }
    }
    place.seen = event.position;
    Ok(())
}

async fn react(app: &App, call: &Call, reaction: Reaction) -> Result<(), Problem> {
    match reaction {
        Reaction::QueueBuild(build) => builds::queue(app, call, build).await?,
        Reaction::SettleBuild(job) => builds::settle(app, call, job).await?,
        Reaction::WakeWaitersOfBuild(build) => {
            steps::wake_waiters_of_build(app, call, build).await?
        }
        Reaction::Provision(install) => runs::provision(app, call, install).await?,
        Reaction::GoOn(run) => steps::go_on(app, call, run).await?,
        Reaction::SettleStep(job) => steps::settle(app, call, job).await?,
        Reaction::WakeWaitersOf(install) => steps::wake(app, call, install).await?,
    };
    Ok(())
}

fn fact(event: &Stored) -> Result<Option<Fact>, Problem> {
    let id = &event.stream.aggregate_id;
    let named = |_| Problem::internal(format!("{} names nothing", event.stream));
    Ok(match event.stream.aggregate_type.as_str() {
        "build" => Some(Fact::Build(id.parse().map_err(named)?, event.decode()?)),
        "install" => Some(Fact::Install(id.parse().map_err(named)?, event.decode()?)),
        "job" => Some(Fact::Job(id.parse().map_err(named)?, event.decode()?)),
        "run" => Some(Fact::Run(id.parse().map_err(named)?, event.decode()?)),
        _ => None,
    })
}

fn is_over(problem: &Problem) -> bool {
    // What others kept changing meanwhile is tried again until it is done.
    problem.code.status() < 500 && problem.code != Code::Conflict
}

fn event_id(event: &Stored) -> String {
    domain::ids::EventId(event.event_id).to_string()
}
