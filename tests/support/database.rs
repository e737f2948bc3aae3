//! An empty database, as an operator has made it for `stead migrate` and `stead serve`.
use event_log::testing::{Binaries, fresh_empty_database};

use crate::stdout_of;

/// The URLs of its owner and of the role that inserts and selects.
pub(crate) fn empty() -> (String, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let owner = runtime.block_on(fresh_empty_database()).unwrap().url;
    let mut psql = Binaries::find().unwrap().command("psql");
    // Roles belong to the cluster: another test may have made this one.
    let role = "do $$ begin create role stead_app login; exception when others then \
                alter role stead_app login; end $$";
    stdout_of(psql.args(["-X", "-q", "-d", &owner, "-c", role]));
    let application = owner.replacen("//stead@", "//stead_app@", 1);
    assert_ne!(owner, application, "the owner's URL names no role");
    (owner, application)
}
