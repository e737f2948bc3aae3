// Measures appends of emmett-postgresql, each to a new stream, as its documentation recommends.
// usage: node emmett.mjs URL CALLERS SECONDS BYTES
// Prints JSON with the time of each call and the total time, in µs.
import { randomUUID } from 'node:crypto';
import { STREAM_DOES_NOT_EXIST } from '@event-driven-io/emmett';
import { getPostgreSQLEventStore } from '@event-driven-io/emmett-postgresql';
import pg from 'pg';

const [url, callers, seconds, bytes] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: url, max: Number(callers) });
const store = getPostgreSQLEventStore(url, { connectionOptions: { pool } });
await store.schema.migrate();

const fill = 'a'.repeat(Number(bytes) - 40);
const calls = [];
const began = process.hrtime.bigint();
const end = began + BigInt(seconds) * 1_000_000_000n;
await Promise.all(
  Array.from({ length: Number(callers) }, async () => {
    for (let start = process.hrtime.bigint(); start < end; ) {
      const event = { type: 'queued', data: { number: calls.length, manifest: fill } };
      await store.appendToStream(`job-${randomUUID()}`, [event], {
        expectedStreamVersion: STREAM_DOES_NOT_EXIST,
      });
      const now = process.hrtime.bigint();
      calls.push(Number(now - start) / 1000);
      start = now;
    }
  }),
);
const whole = Number(process.hrtime.bigint() - began) / 1000;
await store.close();
await pool.end();
console.log(JSON.stringify({ whole, calls: calls.map(Math.round) }));
