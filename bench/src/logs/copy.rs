//! The same bytes by binary COPY, as a baseline for the write speed of Postgres and its disk.
use std::time::{Duration, Instant};

use measure::Run;
use sqlx::{PgPool, postgres::PgPoolCopyExt as _};
use ulid::Ulid;

use super::terraform::Output;

/// Number of chunks per commit, the maximum of Stead's batches.
const CHUNKS: usize = 128;
/// Number of lines per commit.
const LINES: usize = 10_000;

/// Creates the tables. Returns true if Postgres compresses with lz4.
pub async fn prepare(pool: &PgPool) -> bool {
    let tables = "create table chunk (execution text, start bigint, bytes bytea, primary key (execution, start)); \
                  create table line (execution text, n bigint, line text, primary key (execution, n))";
    sqlx::raw_sql(tables).execute(pool).await.unwrap();
    let lz4 = sqlx::raw_sql("alter table chunk alter column bytes set compression lz4");
    lz4.execute(pool).await.is_ok()
}

pub async fn chunks(pool: &PgPool, output: &Output, period: Duration) -> Run {
    let all = output.chunks().collect::<Vec<_>>();
    let (start, mut bytes, mut next) = (Instant::now(), 0, 0);
    while start.elapsed() < period {
        let mut tuples = Tuples::new();
        let execution = Ulid::new().to_string();
        for number in 0..CHUNKS {
            let chunk = all[next % all.len()];
            let offset = (number as u64) << 16;
            tuples.add([execution.as_bytes(), &offset.to_be_bytes(), chunk]);
            (next, bytes) = (next + 1, bytes + chunk.len());
        }
        tuples.send(pool, "chunk").await;
    }
    Run { events: bytes / 1_000, whole: start.elapsed(), calls: Vec::new() }
}

pub async fn rows(pool: &PgPool, output: &Output, period: Duration) -> Run {
    let mut lines = output.bytes.split_inclusive(|byte| *byte == b'\n').cycle();
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < period {
        let mut tuples = Tuples::new();
        let execution = Ulid::new().to_string();
        for number in 0..LINES as u64 {
            let line = lines.next().unwrap();
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            tuples.add([execution.as_bytes(), &number.to_be_bytes(), text]);
            bytes += line.len();
        }
        tuples.send(pool, "line").await;
    }
    Run { events: bytes / 1_000, whole: start.elapsed(), calls: Vec::new() }
}

/// Stored bytes for each byte that was copied as a chunk.
pub async fn stored(pool: &PgPool) -> f64 {
    let ratio =
        "select pg_total_relation_size('chunk')::float8 / sum(octet_length(bytes)) from chunk";
    sqlx::query_scalar(ratio).fetch_one(pool).await.unwrap()
}

/// Rows in the binary format of COPY.
struct Tuples(Vec<u8>);

impl Tuples {
    fn new() -> Tuples {
        // Signature, no flags, no extension.
        let mut bytes = b"PGCOPY\n\xff\r\n\0".to_vec();
        bytes.extend_from_slice(&[0; 8]);
        Tuples(bytes)
    }

    fn add<const N: usize>(&mut self, fields: [&[u8]; N]) {
        self.0.extend_from_slice(&(N as i16).to_be_bytes());
        for field in fields {
            self.0.extend_from_slice(&(field.len() as i32).to_be_bytes());
            self.0.extend_from_slice(field);
        }
    }

    async fn send(mut self, pool: &PgPool, table: &str) {
        self.0.extend_from_slice(&(-1_i16).to_be_bytes());
        let copy = format!("copy {table} from stdin (format binary)");
        let mut copy = pool.copy_in_raw(&copy).await.unwrap();
        copy.send(self.0).await.unwrap();
        copy.finish().await.unwrap();
    }
}
