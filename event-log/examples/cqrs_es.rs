//! A bank account as a `cqrs-es` aggregate on the event log. Stock `postgres-es` then reads its
//! events from the table of the log.
//!
//! `cargo run -p event-log --example cqrs_es` runs it. It needs the Postgres binaries. It creates a
//! database in the private Postgres of the tests, which the example `stop_test_postgres` stops.
use std::error::Error;

use cqrs_es::{
    Aggregate, AggregateContext, AggregateError, CqrsFramework, DomainEvent, EventStore,
    event_sink::EventSink, persist::PersistedEventStore,
};
use event_log::{testing::fresh_database, verify::verify};
use postgres_es::PostgresEventRepository;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    balance: u64,
}

#[derive(Debug)]
enum AccountCommand {
    Deposit(u64),
    Withdraw(u64),
}

// The tag makes every payload a JSON object, as the log requires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AccountEvent {
    Deposited { amount: u64 },
    Withdrawn { amount: u64 },
}

#[derive(Debug, thiserror::Error)]
#[error("cannot withdraw {amount}: the balance is {balance}")]
struct InsufficientBalance {
    amount: u64,
    balance: u64,
}

impl DomainEvent for AccountEvent {
    fn event_type(&self) -> String {
        match self {
            AccountEvent::Deposited { .. } => "account.deposited".into(),
            AccountEvent::Withdrawn { .. } => "account.withdrawn".into(),
        }
    }

    // The log accepts whole numbers only.
    fn event_version(&self) -> String {
        "1".into()
    }
}

impl Aggregate for Account {
    const TYPE: &'static str = "account";
    type Command = AccountCommand;
    type Event = AccountEvent;
    type Error = InsufficientBalance;
    type Services = ();

    async fn handle(
        &mut self,
        command: AccountCommand,
        (): &(),
        sink: &EventSink<Account>,
    ) -> Result<(), InsufficientBalance> {
        let event = match command {
            AccountCommand::Deposit(amount) => AccountEvent::Deposited { amount },
            AccountCommand::Withdraw(amount) if amount > self.balance => {
                return Err(InsufficientBalance { amount, balance: self.balance });
            }
            AccountCommand::Withdraw(amount) => AccountEvent::Withdrawn { amount },
        };
        sink.write(event, self).await;
        Ok(())
    }

    fn apply(&mut self, event: AccountEvent) {
        match event {
            AccountEvent::Deposited { amount } => self.balance += amount,
            AccountEvent::Withdrawn { amount } => self.balance -= amount,
        }
    }
}

/// Runs the example. A test of this crate calls it, too.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let database = fresh_database().await?;
    let log = database.log().await?;

    // The log is the event store of the framework.
    let accounts = CqrsFramework::<Account, _>::new(log, Vec::new(), ());
    accounts.execute("1", AccountCommand::Deposit(100)).await?;
    accounts.execute("1", AccountCommand::Withdraw(30)).await?;
    // A rejected command appends nothing.
    match accounts.execute("1", AccountCommand::Withdraw(500)).await {
        Err(AggregateError::UserError(error)) => println!("rejected: {error}"),
        other => return Err(format!("expected a rejection, got {other:?}").into()),
    }

    // Stock postgres-es, with the names of the tables of the log.
    let repository = PostgresEventRepository::new(database.pool.clone())
        .with_tables("stead.log_event", "stead.log_snapshot");
    let stock = PersistedEventStore::<_, Account>::new_event_store(repository);
    for event in stock.load_events("1").await? {
        println!("{} {}: {:?}", event.sequence, event.payload.event_type(), event.payload);
    }
    let mut context = stock.load_aggregate("1").await?;
    assert_eq!(context.aggregate(), &Account { balance: 70 });

    let verified = verify(&database.pool, 0, |_| {}).await?;
    assert_eq!(verified.size, 2);
    println!("verified {} events, root {}", verified.size, hex::encode(verified.root));
    Ok(())
}
