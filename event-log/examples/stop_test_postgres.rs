//! Stops and removes the private Postgres that the tests of this checkout share. The tests leave it
//! running.
#[tokio::main]
async fn main() -> Result<(), event_log::testing::TestingError> {
    event_log::testing::stop_shared().await
}
