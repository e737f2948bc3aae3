// Measures graphile-worker in one Node process, as its documentation recommends.
// usage: node graphile.mjs URL stock|tuned JOBS SECONDS
// Prints JSON with the number of finished jobs and the time in µs. `together`: 16 callers queue jobs one by one while
// workers run. `drained`: all jobs are queued before the clock starts. Each measurement takes at most SECONDS.
import { randomUUID } from 'node:crypto';
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';
import { measure } from './measure.mjs';

const [url, how, jobs, seconds] = process.argv.slice(2);
const logger = new Logger(() => () => {});
// 24 concurrent jobs, as in the benchmarks of graphile-worker. `stock` uses defaults for everything else.
const tuned = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const worker = {
  connectionString: url, concurrentJobs: 24, maxPoolSize: 26, ...(how === 'tuned' ? tuned : {}),
};
const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: 16, logger });
await utils.migrate();
const pool = new pg.Pool({ connectionString: url, max: 1 });
const payload = () => ({ id: randomUUID(), fill: 'a'.repeat(180) });

console.log(JSON.stringify(await measure({
  jobs: Number(jobs),
  seconds: Number(seconds),
  queue: () => utils.addJob('nothing', payload()),
  fill: (number) => utils.addJobs(Array.from({ length: number }, () => (
    { identifier: 'nothing', payload: payload() }))),
  work: async (done) => {
    const runner = await run({
      preset: { worker }, logger, noHandleSignals: true, taskList: { nothing: async () => done() },
    });
    return () => runner.stop();
  },
  left: async () => {
    const sql = 'select count(*)::int as left from graphile_worker._private_jobs';
    return (await pool.query(sql)).rows[0].left;
  },
})));
await utils.release();
await pool.end();
