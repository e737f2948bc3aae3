//! Stop and remove the private Postgres that this checkout's tests share: the end of `scripts/test`.
fn main() -> Result<(), event_log::testing::TestingError> {
    event_log::testing::stop_shared()
}
