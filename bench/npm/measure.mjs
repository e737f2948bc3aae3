// Measurement of every job queue. It counts the jobs that the database records as finished.
import { setTimeout as sleep } from 'node:timers/promises';

const CALLERS = 16;

/** Measures jobs while callers queue them (`together`), and jobs that were queued before (`drained`). */
export async function measure({ jobs, seconds, queue, fill, work, left }) {
  const together = await until({ jobs, seconds, work, left }, async () => {
    let next = 0;
    await Promise.all(Array.from({ length: CALLERS }, async () => {
      while (next < jobs) {
        next += 1;
        await queue();
      }
    }));
  });
  // Jobs that were not finished in time stay queued and count for the next measurement.
  const before = await left();
  for (let filled = before; filled < jobs; filled += 1000) await fill(Math.min(1000, jobs - filled));
  const drained = await until({ jobs: Math.max(jobs, before), seconds, work, left }, async () => {});
  return { together, drained };
}

/** Works until all jobs are finished, or the time is over. */
async function until({ jobs, seconds, work, left }, queued) {
  let done = 0;
  const began = process.hrtime.bigint();
  const took = () => Number(process.hrtime.bigint() - began) / 1000;
  const stop = await work(() => { done += 1; });
  await queued();
  // The worker calls the handler before it records the job as finished, so the end is read from the table.
  let open = jobs;
  while (took() < seconds * 1e6) {
    if (done >= jobs) {
      open = await left();
      if (open === 0) break;
      await sleep(1);
    } else {
      await sleep(2);
    }
  }
  const whole = took();
  if (open !== 0) open = await left();
  await stop();
  return { jobs: jobs - open, whole };
}
