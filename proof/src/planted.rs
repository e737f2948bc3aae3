//! Mistakes made on purpose, one at a time, to show that the checks after faults find them. Only in builds with the
//! feature `planted`, which nothing but the tests turns on; and even there nothing is wrong until a test asks for it.
use std::sync::{
    OnceLock,
    atomic::{AtomicU8, Ordering},
};

/// The variable by which a whole process gets one.
pub const VARIABLE: &str = "STEAD_PLANTED";

macro_rules! bugs {
    ($($name:ident = $number:literal $word:literal, $what:literal;)*) => {
        /// What is done wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $(#[doc = $what] $name = $number,)*
        }
        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$name,)*];
            /// Its name in [`VARIABLE`].
            pub fn word(self) -> &'static str {
                match self { $(Bug::$name => $word,)* }
            }
        }
    };
}

bugs! {
    AnswerBeforeCommit = 1 "answer_before_commit", "Callers are answered before the statement is sent.";
    RetryInDoubt = 2 "retry_in_doubt", "A batch in doubt is sent again without asking whether it was written.";
    GuardWithoutAbsent = 3 "guard_without_absent", "A stream that does not exist passes for any version.";
    HeadBeforeTables = 4 "head_before_tables", "A swap locks the head first and the tables second.";
    ReaperByUpdate = 5 "reaper_by_update", "What is overdue is changed in its row instead of by a command.";
    ConsumerOffByOne = 6 "consumer_off_by_one", "A consumer's position is one further than what it has consumed.";
    UnprefixedLeaf = 7 "unprefixed_leaf", "Leaves of the tree are hashed without their 0x00.";
    PanicInTask = 8 "panic_in_task", "The background task of timers panics again and again.";
    PanicInAppender = 9 "panic_in_appender", "The appender panics at its next batch.";
    PanicInProjector = 10 "panic_in_projector", "The task that keeps projections up to date panics again and again.";
}

const NONE: u8 = 0;
static PLANTED: AtomicU8 = AtomicU8::new(NONE);

/// Whether that mistake is being made.
pub fn has(bug: Bug) -> bool {
    static OF_THE_PROCESS: OnceLock<Option<Bug>> = OnceLock::new();
    let of_the_process = *OF_THE_PROCESS.get_or_init(|| {
        let word = std::env::var(VARIABLE).ok()?;
        Bug::ALL.iter().copied().find(|bug| bug.word() == word)
    });
    of_the_process == Some(bug) || PLANTED.load(Ordering::SeqCst) == bug as u8
}

/// Make that mistake from here on, in the whole process, until this is dropped.
#[must_use]
pub fn plant(bug: Bug) -> Planted {
    PLANTED.store(bug as u8, Ordering::SeqCst);
    Planted(())
}

/// As long as this lives a mistake is made.
#[derive(Debug)]
pub struct Planted(());

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.store(NONE, Ordering::SeqCst);
    }
}
