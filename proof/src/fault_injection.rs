//! Fault injection: one deliberate fault at a time, to show that the checks after a test detect it.
//!
//! Only builds with the feature `fault-injection` contain this module. Only tests enable the
//! feature, and no fault is active until a test activates one.
use std::sync::{
    OnceLock,
    atomic::{AtomicU8, Ordering},
};

/// Environment variable that activates a fault for the whole process.
pub const VARIABLE: &str = "STEAD_INJECTED_FAULT";

macro_rules! faults {
    ($($name:ident = $number:literal $text:literal, $what:literal;)*) => {
        /// Fault that a test can inject.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault {
            $(#[doc = $what] $name = $number,)*
        }
        impl Fault {
            /// Every fault, in the order of the declaration.
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];
            /// Returns the name for [`VARIABLE`].
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    RespondBeforeCommit = 1 "respond_before_commit", "Sends responses before the database statement.";
    RetryInDoubt = 2 "retry_in_doubt", "Sends an in-doubt batch again without a check whether it was committed.";
    GuardWithoutAbsent = 3 "guard_without_absent", "Accepts any expected version for a stream that does not exist.";
    HeadBeforeTables = 4 "head_before_tables", "Locks the head before the tables in a swap of projections.";
    ReaperByUpdate = 5 "reaper_by_update", "Changes overdue jobs in their rows instead of by a command.";
    ConsumerOffByOne = 6 "consumer_off_by_one", "Stores a consumer position that is one too high.";
    UnprefixedLeaf = 7 "unprefixed_leaf", "Hashes leaves of the tree without the prefix 0x00.";
    PanicInTask = 8 "panic_in_task", "Panics repeatedly in the background task of timers.";
    PanicInAppender = 9 "panic_in_appender", "Panics in the appender at its next batch.";
    PanicInProjector = 10 "panic_in_projector", "Panics repeatedly in the task that updates projections.";
    StateWithoutFence = 11 "state_without_fence", "Stores a state of a former execution after a later one has stored one.";
}

const NONE: u8 = 0;
static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

/// Returns whether the fault is active.
pub fn has(fault: Fault) -> bool {
    static FROM_ENVIRONMENT: OnceLock<Option<Fault>> = OnceLock::new();
    let from_environment = *FROM_ENVIRONMENT.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        Fault::ALL.iter().copied().find(|fault| fault.name() == name)
    });
    from_environment == Some(fault) || ACTIVE.load(Ordering::SeqCst) == fault as u8
}

/// Activates a fault in the whole process until the returned value is dropped.
#[must_use]
pub fn inject(fault: Fault) -> ActiveFault {
    ACTIVE.store(fault as u8, Ordering::SeqCst);
    ActiveFault(())
}

/// Guard of an active fault. The fault ends when it is dropped.
#[derive(Debug)]
pub struct ActiveFault(());

impl Drop for ActiveFault {
    fn drop(&mut self) {
        ACTIVE.store(NONE, Ordering::SeqCst);
    }
}
