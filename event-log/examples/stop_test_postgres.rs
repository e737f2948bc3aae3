//! Stops and removes the private Postgres that the tests of this checkout share. `scripts/test`
//! runs it at its end.
fn main() -> Result<(), event_log::testing::TestingError> {
    event_log::testing::stop_shared()
}
