//! Faults of processes, disk, network and clocks, each of which is repaired after a while.
use std::{fmt, fs, time::Duration};

use event_log::testing::proxy::Fault as Broken;
use rand::{Rng, rngs::StdRng};

use super::environment::{Environment, signal};

macro_rules! faults {
    ($($name:ident $what:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($name,)* }
        impl Fault {
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];
        }
        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Fault::$name => $what,)* })
            }
        }
    };
}

faults! {
    KillServer "kill -9 of a server";
    KillServers "kill -9 of both servers";
    KillRunner "kill -9 of the runner";
    KillPostgres "kill -9 of Postgres";
    StopPostgres "immediate stop of Postgres";
    EndBackends "backends terminated";
    FreezeServer "a server frozen";
    FreezeRunner "the runner frozen";
    CutBefore "connections cut before the statement";
    CutInside "connections cut inside the statement";
    CutAfter "connections cut after the commit";
    Late "connections cut, the statement arrives later";
    Silent "connections stalled";
    Partition "a server partitioned from the database";
    DiskFull "the disk full";
    ClockJump "a server's clock set";
}

/// Longer than the lease of a server's policies.
const LONGER_THAN_A_CONSUMERS: Duration = Duration::from_secs(17);
/// Longer than the lease of a job.
const LONGER_THAN_A_RUNNERS: Duration = Duration::from_secs(70);

impl Fault {
    /// True if this machine supports the fault.
    pub fn is_possible(self, environment: &Environment) -> bool {
        match self {
            Fault::DiskFull => environment.disk().is_some(),
            Fault::ClockJump => environment.clocks.is_some(),
            Fault::KillServer
            | Fault::KillServers
            | Fault::KillRunner
            | Fault::KillPostgres
            | Fault::StopPostgres
            | Fault::EndBackends
            | Fault::FreezeServer
            | Fault::FreezeRunner
            | Fault::CutBefore
            | Fault::CutInside
            | Fault::CutAfter
            | Fault::Late
            | Fault::Silent
            | Fault::Partition => true,
        }
    }

    /// Injects the fault, waits, and repairs the fault. In a long campaign, the wait may exceed the
    /// longest lease.
    pub fn inject(
        self,
        environment: &mut Environment,
        random: &mut StdRng,
        is_long_campaign: bool,
    ) {
        let server = random.gen_range(0..environment.servers.len());
        let pause = Duration::from_millis(random.gen_range(200..2_500));
        match self {
            Fault::KillServer => {
                environment.servers[server].kill();
                std::thread::sleep(pause);
                environment.servers[server].restart();
            }
            Fault::KillServers => {
                environment.servers.iter_mut().for_each(tests::Server::kill);
                std::thread::sleep(pause);
                environment.servers.iter_mut().for_each(tests::Server::restart);
            }
            Fault::KillRunner => {
                environment.runner.kill();
                std::thread::sleep(pause);
                environment.runner.restart();
            }
            Fault::KillPostgres => {
                environment.kill_postgres();
                std::thread::sleep(pause);
                environment.start_postgres();
            }
            Fault::StopPostgres => {
                environment.stop_postgres();
                std::thread::sleep(pause);
                environment.start_postgres();
            }
            Fault::EndBackends => {
                for _ in 0..3 {
                    environment.end_backends();
                    std::thread::sleep(pause / 4);
                }
            }
            Fault::FreezeServer => {
                let lease =
                    if is_long_campaign { LONGER_THAN_A_RUNNERS } else { LONGER_THAN_A_CONSUMERS };
                freeze(environment.servers[server].pid(), choose_pause(random, lease, pause));
            }
            Fault::FreezeRunner => {
                let lease = if is_long_campaign { LONGER_THAN_A_RUNNERS } else { pause };
                freeze(environment.runner.pid(), choose_pause(random, lease, pause));
            }
            Fault::CutBefore => cut(environment, random, Broken::RequestLost),
            Fault::CutInside => cut(environment, random, Broken::RequestTorn),
            Fault::CutAfter => cut(environment, random, Broken::ReplyLost),
            Fault::Late => {
                let late = Duration::from_millis(random.gen_range(0..400));
                environment.proxies[server].arm_late(late);
                std::thread::sleep(pause);
            }
            Fault::Silent => {
                let kinds = [Broken::SilentBefore, Broken::SilentAfter];
                environment.proxies[server].arm(kinds[random.gen_range(0..2)]);
                std::thread::sleep(pause);
            }
            Fault::Partition => {
                environment.proxies[server].set_partitioned(true);
                std::thread::sleep(pause * 2);
                environment.proxies[server].set_partitioned(false);
            }
            Fault::DiskFull => {
                let full = environment.disk().is_some_and(|disk| disk.fill().unwrap_or(false));
                assert!(full, "the disk could not be filled");
                std::thread::sleep(pause * 2);
                environment.make_room();
                // Postgres stops when it has no space for its WAL.
                environment.start_postgres();
            }
            Fault::ClockJump => {
                let Some(clocks) = &environment.clocks else { return };
                let seconds = random.gen_range(-1_800..1_800);
                fs::write(&clocks[server], format!("{seconds:+}")).unwrap();
                std::thread::sleep(pause * 2);
                fs::write(&clocks[server], "+0").unwrap();
            }
        }
    }
}

/// Returns `lease` with a probability of 20 %, otherwise `pause`.
fn choose_pause(random: &mut StdRng, lease: Duration, pause: Duration) -> Duration {
    if random.gen_bool(0.2) { lease } else { pause }
}

fn freeze(pid: u32, time: Duration) {
    signal("-STOP", &pid.to_string());
    std::thread::sleep(time);
    signal("-CONT", &pid.to_string());
}

/// Breaks eight connections to the database as `broken` specifies, each at the proxy of a random
/// server.
fn cut(environment: &Environment, random: &mut StdRng, broken: Broken) {
    for _ in 0..8 {
        environment.proxies[random.gen_range(0..environment.proxies.len())].arm(broken);
        std::thread::sleep(Duration::from_millis(random.gen_range(30..300)));
    }
}
