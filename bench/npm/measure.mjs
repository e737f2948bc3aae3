// The same measurement for every queue: what counts is what the database says is done.
import { setTimeout as sleep } from 'node:timers/promises';

const CALLERS = 16;

/** Jobs from queue to done, once while they are queued and once from a queue that is full. */
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
  // What is left when the time was over is worked off by nobody: it is part of the next queue.
  const before = await left();
  for (let filled = before; filled < jobs; filled += 1000) await fill(Math.min(1000, jobs - filled));
  const drained = await until({ jobs: Math.max(jobs, before), seconds, work, left }, async () => {});
  return { together, drained };
}

/** Works until all are done, or the time is over. */
async function until({ jobs, seconds, work, left }, queued) {
  let done = 0;
  const began = process.hrtime.bigint();
  const took = () => Number(process.hrtime.bigint() - began) / 1000;
  const stop = await work(() => { done += 1; });
  await queued();
  // The handler is called before the job is marked as done: the end is when the table says so.
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
