// Measures pg-boss in one Node process, as its documentation recommends.
// usage: node pg-boss.mjs URL stock|tuned JOBS SECONDS
// The output has the same format as that of graphile.mjs.
import { randomUUID } from 'node:crypto';
import { PgBoss } from 'pg-boss';
import pg from 'pg';
import { measure } from './measure.mjs';

const [url, how, jobs, seconds] = process.argv.slice(2);
const boss = new PgBoss({ connectionString: url, max: 26, supervise: false, schedule: false });
boss.on('error', (error) => { throw error; });
await boss.start();
await boss.createQueue('nothing');
const pool = new pg.Pool({ connectionString: url, max: 1 });
const payload = () => ({ id: randomUUID(), fill: 'a'.repeat(180) });
// 24 workers in both modes. `stock` uses the defaults: batches of one job, and a poll every two seconds.
const tuned = { batchSize: 500, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
const options = { localConcurrency: 24, ...(how === 'tuned' ? tuned : {}) };

console.log(JSON.stringify(await measure({
  jobs: Number(jobs),
  seconds: Number(seconds),
  queue: () => boss.send('nothing', payload()),
  fill: (number) => boss.insert('nothing', Array.from({ length: number }, () => ({ data: payload() }))),
  work: async (done) => {
    await boss.work('nothing', options, async (batch) => batch.forEach(done));
    return () => boss.offWork('nothing');
  },
  left: async () => {
    const sql = "select count(*)::int as left from pgboss.job where name = 'nothing' and state < 'completed'";
    return (await pool.query(sql)).rows[0].left;
  },
})));
await boss.stop({ graceful: false });
await pool.end();
